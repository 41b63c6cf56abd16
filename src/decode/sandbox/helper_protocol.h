/* decode/sandbox/helper_protocol.h: the messages between an engine and its decode helper.
 *
 *   engine                                        helper (stoker-decode)
 *   hello ------------------------------------>   maps the arena, drops all privileges
 *         <------------------------------------   ready
 *   command (size, parameters; the image is in the arena) ->
 *         <------------------------------------   reply (pixels are in the arena)
 *   parse (a JSON, MessagePack or npz member) ->
 *         <------------------------------------   reply (its serialised values are in the arena)
 *   close ------------------------------------>   ends
 *
 * Messages are plain structs over a SOCK_SEQPACKET socket, which keeps message boundaries: the
 * receiver checks a private copy. The arena holds only bytes of images and pixels. Both ends have
 * the same version: PROTOCOL changes with every change here.
 * Owner: values. Threads: one at each end. Memory: none. Bound: sizeof the messages. */
#ifndef DECODE_SANDBOX_HELPER_PROTOCOL_H
#define DECODE_SANDBOX_HELPER_PROTOCOL_H

#include "decode/image/transform_plan.h"

#define STK_HELPER_PROTOCOL 0x73746b06u
/* The only descriptors that a helper starts with. */
#define STK_HELPER_SOCKET 3
#define STK_HELPER_ARENA 4

struct stk_helper_handshake {
    uint32_t protocol;
    uint32_t vector; /* enum stoker_simd */
    int32_t parent;  /* process id */
    uint64_t arena_bytes;
};

struct stk_helper_handshake_reply {
    uint32_t protocol;
    uint32_t landlock; /* version of its interface; 0: the kernel has none */
    int32_t status;
    char step[64]; /* that failed */
};

enum stk_helper_request_kind { STK_HELPER_DECODE = 1, STK_HELPER_PARSE };

/* The image is at the start of the arena. */
struct stk_helper_decode_request {
    uint32_t protocol;
    uint32_t sequence;
    uint32_t work; /* PICTURE */
    uint32_t transform_count, dtype, layout, exif, planar, pixel_format, check;
    uint64_t bytes, canvas_offset;
    uint64_t key;
    uint64_t granted_bytes; /* decode only if it needs no more than this */
    uint64_t pixels_max, memory_bytes_max;
    struct stoker_transform transforms[STK_TRANSFORM_PLAN_MAX]; /* only transform_count are sent */
};

/* The member is at the start of the arena, followed by the path and a NUL. */
struct stk_helper_parse_request {
    uint32_t protocol;
    uint32_t sequence;
    uint32_t work;                 /* PARSE */
    uint32_t encoding, check_only; /* enum stk_value_encoding; 1: only checks the complete value */
    uint64_t bytes, path_offset, path_bytes;
    uint64_t buffer_offset, buffer_bytes; /* for the packed value */
    uint64_t granted_bytes, memory_bytes_max;
};

enum stk_helper_reply_kind { STK_HELPER_DONE = 1, STK_HELPER_NEEDS_MEMORY, STK_HELPER_FAILED };

struct stk_helper_reply {
    uint32_t protocol;
    uint32_t sequence; /* of the command */
    uint32_t kind;     /* enum stk_helper_reply_kind */
    int32_t status;    /* FAILED */
    uint64_t value;    /* DONE: bytes packed, or stk_image_decoder_decoded_by; NEEDS: bytes; FAILED:
                          offset in the image */
    char what[192], where[768], advice[256]; /* only FAILED sends them */
};

#define STK_HELPER_DECODE_REQUEST_HEAD offsetof(struct stk_helper_decode_request, transforms)
#define STK_HELPER_REPLY_HEAD offsetof(struct stk_helper_reply, what)

#endif
