"""Run models in a separate process (`remote`, `server`), since onnxruntime may crash."""
