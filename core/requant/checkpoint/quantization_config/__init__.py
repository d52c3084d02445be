"""The member `quantization_config` of config.json: what each `quant_method` says of its weights, written and read."""
