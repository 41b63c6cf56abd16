/* The globals that a pickle may name. None of them is imported or called. */
#include "checkpoint/pickle/pickle.h"

#include "base/text/text_match.h"

#include <string.h>

#define METADATA "torch.distributed.checkpoint.metadata"
#define SHARDED "torch.distributed._shard.sharded_tensor.metadata"

static const struct stk_pickle_global globals[] = {
    {"collections", "OrderedDict", STK_PICKLE_ORDERED_DICT, NULL},
    {"torch._utils", "_rebuild_tensor_v2", STK_PICKLE_REBUILD_TENSOR, NULL},
    {"torch._utils", "_rebuild_tensor_v3", STK_PICKLE_REBUILD_TENSOR, NULL},
    {"torch._utils", "_rebuild_parameter", STK_PICKLE_REBUILD_PARAMETER, NULL},
    {"torch", "Size", STK_PICKLE_SIZE, NULL},
    {"torch", "device", STK_PICKLE_DEVICE, NULL},
    {"torch", "FloatStorage", STK_PICKLE_STORAGE, "F32"},
    {"torch", "DoubleStorage", STK_PICKLE_STORAGE, "F64"},
    {"torch", "HalfStorage", STK_PICKLE_STORAGE, "F16"},
    {"torch", "BFloat16Storage", STK_PICKLE_STORAGE, "BF16"},
    {"torch", "LongStorage", STK_PICKLE_STORAGE, "I64"},
    {"torch", "IntStorage", STK_PICKLE_STORAGE, "I32"},
    {"torch", "ShortStorage", STK_PICKLE_STORAGE, "I16"},
    {"torch", "CharStorage", STK_PICKLE_STORAGE, "I8"},
    {"torch", "ByteStorage", STK_PICKLE_STORAGE, "U8"},
    {"torch", "BoolStorage", STK_PICKLE_STORAGE, "BOOL"},
    {"torch", "ComplexFloatStorage", STK_PICKLE_STORAGE, "C64"},
    {"torch.storage", "UntypedStorage", STK_PICKLE_STORAGE, NULL},
    {"torch", "UntypedStorage", STK_PICKLE_STORAGE, NULL},
    {"torch", "float32", STK_PICKLE_DTYPE, "F32"},
    {"torch", "float", STK_PICKLE_DTYPE, "F32"},
    {"torch", "float64", STK_PICKLE_DTYPE, "F64"},
    {"torch", "double", STK_PICKLE_DTYPE, "F64"},
    {"torch", "float16", STK_PICKLE_DTYPE, "F16"},
    {"torch", "half", STK_PICKLE_DTYPE, "F16"},
    {"torch", "bfloat16", STK_PICKLE_DTYPE, "BF16"},
    {"torch", "int64", STK_PICKLE_DTYPE, "I64"},
    {"torch", "long", STK_PICKLE_DTYPE, "I64"},
    {"torch", "int32", STK_PICKLE_DTYPE, "I32"},
    {"torch", "int", STK_PICKLE_DTYPE, "I32"},
    {"torch", "int16", STK_PICKLE_DTYPE, "I16"},
    {"torch", "int8", STK_PICKLE_DTYPE, "I8"},
    {"torch", "uint8", STK_PICKLE_DTYPE, "U8"},
    {"torch", "uint16", STK_PICKLE_DTYPE, "U16"},
    {"torch", "uint32", STK_PICKLE_DTYPE, "U32"},
    {"torch", "uint64", STK_PICKLE_DTYPE, "U64"},
    {"torch", "bool", STK_PICKLE_DTYPE, "BOOL"},
    {"torch", "complex64", STK_PICKLE_DTYPE, "C64"},
    {"torch", "complex128", STK_PICKLE_DTYPE, NULL},
    {"torch", "float8_e4m3fn", STK_PICKLE_DTYPE, "F8_E4M3"},
    {"torch", "float8_e5m2", STK_PICKLE_DTYPE, "F8_E5M2"},
    {"torch", "float8_e4m3fnuz", STK_PICKLE_DTYPE, "F8_E4M3FNUZ"},
    {"torch", "float8_e5m2fnuz", STK_PICKLE_DTYPE, "F8_E5M2FNUZ"},
    {"torch", "float8_e8m0fnu", STK_PICKLE_DTYPE, "F8_E8M0"},
    {METADATA, "Metadata", STK_PICKLE_DCP_METADATA, NULL},
    {METADATA, "TensorStorageMetadata", STK_PICKLE_DCP_TENSOR, NULL},
    {METADATA, "BytesStorageMetadata", STK_PICKLE_DCP_BYTES, NULL},
    {METADATA, "TensorProperties", STK_PICKLE_DCP_PROPERTIES, NULL},
    {METADATA, "ChunkStorageMetadata", STK_PICKLE_DCP_CHUNK, NULL},
    {METADATA, "MetadataIndex", STK_PICKLE_DCP_INDEX, NULL},
    {METADATA, "StorageMeta", STK_PICKLE_OTHER, NULL},
    {METADATA, "_MEM_FORMAT_ENCODING", STK_PICKLE_OTHER, NULL},
    {SHARDED, "TensorProperties", STK_PICKLE_DCP_PROPERTIES, NULL},
    {SHARDED, "MEM_FORMAT_ENCODING", STK_PICKLE_OTHER, NULL},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", STK_PICKLE_DCP_INFO, NULL},
    {"torch.serialization", "_get_layout", STK_PICKLE_OTHER, NULL},
    {"builtins", "getattr", STK_PICKLE_OTHER, NULL}, /* of an encoding of memory formats */
    {"__builtin__", "getattr", STK_PICKLE_OTHER, NULL},
    {"_codecs", "encode", STK_PICKLE_ENCODED_BYTES, NULL},
    {"__builtin__", "bytes", STK_PICKLE_ENCODED_BYTES, NULL},
    {"builtins", "bytes", STK_PICKLE_ENCODED_BYTES, NULL},
    {"pathlib", "PosixPath", STK_PICKLE_PATH, NULL},
    {"pathlib._local", "PosixPath", STK_PICKLE_PATH, NULL},
};

const struct stk_pickle_global *stk_pickle_find_global(struct stk_view module, struct stk_view name)
{
    for (size_t i = 0; i < STK_COUNT(globals); i++) {
        if (stk_view_is(name, globals[i].name) && stk_view_is(module, globals[i].module)) {
            return &globals[i];
        }
    }
    return NULL;
}
