"""What runs compiled steps: devices, meshes, compilation, the steps that are kept, the feed."""
