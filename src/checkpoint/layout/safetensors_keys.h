/* checkpoint/layout/safetensors_keys.h: the keys of our metadata, and how a hashed header begins.
 * Owner: constants. Threads: any. Memory: none. Bound: none. */
#ifndef CHECKPOINT_LAYOUT_SAFETENSORS_KEYS_H
#define CHECKPOINT_LAYOUT_SAFETENSORS_KEYS_H

#define STK_KEY_LEAF_BYTES "stoker.leaf_bytes"
#define STK_KEY_LEAVES "stoker.leaves"
#define STK_KEY_COUNTS "stoker.counts"
#define STK_KEY_TREE "stoker.tree"
#define STK_HEADER_HEAD "{\"__metadata__\":{\"stoker.root\":\"" /* then 64 digits */

#endif
