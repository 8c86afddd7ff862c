# The files of models/mini as read-only data; embedded_model.cpp gives them their names. Paths are relative to the
# source folder, which is on the include path. 64 bytes: a cache line, and a vector register of any backend.
    .section .rodata
    .balign 64
    .global fathom_mini_config
    .global fathom_mini_config_end
fathom_mini_config:
    .incbin "models/mini/config.json"
fathom_mini_config_end:

    .balign 64
    .global fathom_mini_shard
    .global fathom_mini_shard_end
fathom_mini_shard:
    .incbin "models/mini/model-00001-of-00001.safetensors"
fathom_mini_shard_end:

    .balign 64
    .global fathom_mini_index
    .global fathom_mini_index_end
fathom_mini_index:
    .incbin "models/mini/model.safetensors.index.json"
fathom_mini_index_end:

    .balign 64
    .global fathom_mini_tokenizer
    .global fathom_mini_tokenizer_end
fathom_mini_tokenizer:
    .incbin "models/mini/tokenizer.json"
fathom_mini_tokenizer_end:

    .balign 64
    .global fathom_mini_tokenizer_config
    .global fathom_mini_tokenizer_config_end
fathom_mini_tokenizer_config:
    .incbin "models/mini/tokenizer_config.json"
fathom_mini_tokenizer_config_end:

    .balign 64
    .global fathom_mini_generation_config
    .global fathom_mini_generation_config_end
fathom_mini_generation_config:
    .incbin "models/mini/generation_config.json"
fathom_mini_generation_config_end:

    .section .note.GNU-stack,"",%progbits
