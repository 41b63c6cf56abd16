/* decode/sandbox/helper_protocol.h: what an engine and its decode helper say to each other.
 *
 *   engine                                        helper (stoker-decode)
 *   hello ------------------------------------>   maps the arena, gives all rights away
 *         <------------------------------------   ready
 *   command (where, how; the picture lies in the arena) ->
 *         <------------------------------------   answer (pixels lie in the arena)
 *   parse (a member of JSON, MessagePack, npz) ->
 *         <------------------------------------   answer (its values, packed, lie in the arena)
 *   hang up ---------------------------------->   ends
 *
 * Messages are plain structs over a socket that keeps their borders (SOCK_SEQPACKET), so that what
 * is believed is looked at in a copy; the arena holds only bytes of pictures and pixels. Both ends
 * are of one version: PROTOCOL changes with every change here.
 * Owner: values. Threads: one at each end. Memory: none. Bound: sizeof the messages. */
#ifndef DECODE_SANDBOX_HELPER_PROTOCOL_H
#define DECODE_SANDBOX_HELPER_PROTOCOL_H

#include "decode/image/transform_plan.h"

#define STK_SANDBOX_PROTOCOL 0x73746b05u
/* Descriptors that a helper begins with, and no others. */
#define STK_SANDBOX_SOCKET 3
#define STK_SANDBOX_ARENA 4

struct stk_sandbox_hello {
    uint32_t protocol;
    uint32_t vector; /* enum stoker_vector */
    int32_t parent;  /* process id */
    uint64_t arena_bytes;
};

struct stk_sandbox_ready {
    uint32_t protocol;
    uint32_t landlock; /* version of its interface; 0: the kernel has none */
    int32_t status;
    char step[64]; /* that failed */
};

enum stk_sandbox_work { STK_SANDBOX_PICTURE = 1, STK_SANDBOX_PARSE };

/* The picture lies at the arena's begin. */
struct stk_sandbox_command {
    uint32_t protocol;
    uint32_t sequence;
    uint32_t work; /* PICTURE */
    uint32_t transform_count, dtype, layout, exif, planar, stored;
    uint64_t bytes, canvas_offset;
    uint64_t key;
    uint64_t granted_bytes; /* decode only if it takes no more than this */
    uint64_t pixels_max, memory_bytes_max;
    struct stoker_transform transforms[STK_TRANSFORMS_MAX]; /* only transform_count are sent */
};

/* The member lies at the arena's begin, then the path and a NUL. */
struct stk_sandbox_parse {
    uint32_t protocol;
    uint32_t sequence;
    uint32_t work;            /* PARSE */
    uint32_t encoding, whole; /* enum stk_encoding; 1: only whether it is good as a whole */
    uint64_t bytes, path_offset, path_bytes;
    uint64_t room_offset, room_bytes; /* for what is packed */
    uint64_t granted_bytes, memory_bytes_max;
};

enum stk_sandbox_kind { STK_SANDBOX_DONE = 1, STK_SANDBOX_NEEDS, STK_SANDBOX_FAILED };

struct stk_sandbox_answer {
    uint32_t protocol;
    uint32_t sequence; /* of the command */
    uint32_t kind;     /* enum stk_sandbox_kind */
    int32_t status;    /* FAILED */
    uint64_t value;    /* DONE: bytes packed, or stk_decoder_by; NEEDS: bytes; FAILED: offset in
                          the picture */
    char what[192], where[768], advice[256]; /* only FAILED sends them */
};

#define STK_SANDBOX_COMMAND_HEAD offsetof(struct stk_sandbox_command, transforms)
#define STK_SANDBOX_ANSWER_HEAD offsetof(struct stk_sandbox_answer, what)

#endif
