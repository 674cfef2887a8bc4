"""Where memory is kept. Stores never import each other; drivers are imported on use."""
