"""Prepares the TensorFlow stack before any test module imports TensorFlow."""

import environments  # noqa: F401
