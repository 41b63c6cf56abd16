/* decode/sandbox/sandbox.h: decodes images and parses members in a helper process without
 * privileges.
 *
 *   off --first image--> running --image--> running       (one helper process per worker)
 *                             |  crash, timeout, or an invalid reply
 *                             v
 *                          killed: this image is damaged; the next one starts a new helper
 *
 * The helper (stoker-decode) reads the bytes of one image from an arena that both processes map,
 * and writes pixels there; for JSON, MessagePack and npz it writes values (value.h,
 * stk_value_serialize). Before it reads any data it drops access to files, network, processes and
 * all descriptors but two (helper_confine.h). The engine does not trust its replies: see sandbox.c.
 * Owner: the engine; each worker has its sandbox worker. Threads: stk_sandbox_stop: any; a sandbox
 * worker: the thread that uses it, since the helper dies with that thread.
 * Memory: one arena per sandbox worker (sparse; the caller reserves the touched part), and a
 * process of a few MiB. Bound: arena_bytes, decode_bytes_max, timeout_ms. */
#ifndef DECODE_SANDBOX_SANDBOX_H
#define DECODE_SANDBOX_SANDBOX_H

#include "decode/image/image_decode.h"

struct stk_sandbox;        /* shared by the sandbox workers of an engine */
struct stk_sandbox_worker; /* a worker's helper process */

struct stk_sandbox_options {
    const char *helper;   /* path of the program; NULL: beside this library or command */
    uint64_t arena_bytes; /* per sandbox worker: maximum bytes of an image and its pixels */
    uint32_t timeout_ms;  /* CPU time for one image */
    uint32_t vector;      /* enum stoker_simd */
};

/* Starts a helper once to check that it can start; reports features that are missing. */
int stk_sandbox_open(struct stk_sandbox **sandbox_out, const struct stk_sandbox_options *options,
                     struct stoker_error *error);
void stk_sandbox_close(struct stk_sandbox *sandbox); /* call after its workers are closed */
/* Current and later images return CLOSED soon after this call. */
void stk_sandbox_stop(struct stk_sandbox *sandbox);
/* Describes what the kernel enforces, as text for users, valid until close. */
const char *stk_sandbox_name(const struct stk_sandbox *sandbox);

int stk_sandbox_worker_open(struct stk_sandbox_worker **helper_out, struct stk_sandbox *sandbox,
                            struct stoker_error *error);
void stk_sandbox_worker_close(struct stk_sandbox_worker *helper); /* kills the helper */
/* Returns the process id of the helper, 0 if none runs, and the number of helpers started so far.
 * For tests. */
int stk_sandbox_worker_process(const struct stk_sandbox_worker *helper);
uint64_t stk_sandbox_worker_starts(const struct stk_sandbox_worker *helper);

struct stk_sandbox_decode_job {
    const struct stk_transform_plan *plan;
    struct stk_view bytes;
    uint64_t key;
    uint64_t granted_bytes;        /* of memory, by the caller's budget */
    const _Atomic bool *cancelled; /* set when the request is cancelled: CLOSED. NULL: never */
    uint64_t needed_bytes;         /* out, with -EAGAIN */
    const uint8_t *canvas;         /* out; valid until the next call */
    uint32_t decoded_by;           /* out: stk_image_decoder_decoded_by as the helper reports it */
};

/* Returns the bytes of the arena that this job uses. */
uint64_t stk_sandbox_worker_arena_bytes(const struct stk_sandbox_decode_job *job);
/* Returns 0 on success (job->canvas is ready for stk_image_decode_convert), -EAGAIN if the image
 * needs more memory than was granted, CORRUPT also if the decoder crashed, was too slow or sent
 * invalid data. errno values and CLOSED (within 0.1 s) concern this machine, not the image. */
int stk_sandbox_worker_decode(struct stk_sandbox_worker *helper, struct stk_sandbox_decode_job *job,
                              struct stoker_error *error);

struct stk_sandbox_parse_job {
    uint32_t encoding; /* enum stk_value_encoding: JSON, MSGPACK, NPZ */
    bool check_only;   /* only checks the complete value, see stk_value_validate */
    struct stk_view bytes;
    const char *path;      /* of an npz: the array's name; else not looked at */
    uint64_t buffer_bytes; /* of the arena, for the packed value */
    uint64_t granted_bytes, memory_bytes_max;
    const _Atomic bool *cancelled;
    uint64_t needed_bytes;  /* out, with -EAGAIN; more than is packed */
    struct stk_view packed; /* out; for stk_value_deserialize; valid as long as a canvas */
};

/* As stk_sandbox_worker_decode. Also returns MISSING if an npz has no such array. */
int stk_sandbox_worker_parse(struct stk_sandbox_worker *helper, struct stk_sandbox_parse_job *job,
                             struct stoker_error *error);
/* Call between images: frees the arena's memory. */
void stk_sandbox_worker_trim(struct stk_sandbox_worker *helper);

#endif
