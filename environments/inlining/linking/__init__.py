"""What an object's bytes are worth in the linked image, and how large linked images are."""
