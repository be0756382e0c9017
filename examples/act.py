"""Plays with a trained agent, in plain Gymnasium; argument: FOLDER"""

import sys

from train_gymnasium import Echo

import dreamerv3

env, agent = Echo(), dreamerv3.load(sys.argv[1], seed=0)
for episode in range(3):
    obs, info = env.reset(seed=episode)
    agent.reset()
    score, done = 0, False
    while not done:
        action = agent.act({'vector': obs})['action']
        obs, reward, terminated, truncated, info = env.step(action)
        score, done = score + reward, terminated or truncated
    print(f'Episode {episode}: score {score}')
