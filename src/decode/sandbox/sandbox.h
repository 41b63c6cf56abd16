/* decode/sandbox/sandbox.h: pictures decoded, and members parsed, in a process that can do nothing
 * else.
 *
 *   off --first picture--> running --picture--> running       (one helper process a worker)
 *                             |  crashed, too slow, or it answers nonsense
 *                             v
 *                          killed: this picture is damaged; the next one starts another
 *
 * The helper (stoker-decode) sees the bytes of one picture in an arena that both map, and leaves
 * pixels there; of JSON, MessagePack and npz the values (value.h, stk_value_pack). Before it sees
 * any it has given up files, network, processes and all descriptors but two
 * (programs/decode_helper/helper_confine.h). Nothing that it says is believed: see sandbox.c.
 * Owner: the engine; each worker its jail. Threads: stk_sandbox_stop: any; a jail: the worker that
 * uses it, as the helper dies with that thread.
 * Memory: an arena a jail (sparse; what was touched is the caller's to reserve), and a process of
 * a few MiB. Bound: arena_bytes, decode_bytes_max, timeout_ms. */
#ifndef DECODE_SANDBOX_SANDBOX_H
#define DECODE_SANDBOX_SANDBOX_H

#include "decode/image/image_decode.h"

struct stk_sandbox; /* what an engine's jails share */
struct stk_jail;    /* a worker's helper process */

struct stk_sandbox_options {
    const char *helper;   /* path of the program; NULL: beside this library or command */
    uint64_t arena_bytes; /* of a jail: most that a picture and its pixels take */
    uint32_t timeout_ms;  /* CPU time for one picture */
    uint32_t vector;      /* enum stoker_vector */
};

/* Starts a helper once, to know that it can be: what cannot be had is said here. */
int stk_sandbox_open(struct stk_sandbox **sandbox_out, const struct stk_sandbox_options *options,
                     struct stoker_error *error);
void stk_sandbox_close(struct stk_sandbox *sandbox); /* after its jails */
/* Pictures under way and later ones answer CLOSED, soon. */
void stk_sandbox_stop(struct stk_sandbox *sandbox);
/* What the kernel enforces, for people. Lends until close. */
const char *stk_sandbox_name(const struct stk_sandbox *sandbox);

int stk_jail_open(struct stk_jail **jail_out, struct stk_sandbox *sandbox,
                  struct stoker_error *error);
void stk_jail_close(struct stk_jail *jail); /* kills the helper */
/* Process id of the helper, 0 when none runs; helpers started so far. For tests. */
int stk_jail_process(const struct stk_jail *jail);
uint64_t stk_jail_starts(const struct stk_jail *jail);

struct stk_jail_job {
    const struct stk_decode_plan *plan;
    struct stk_view bytes;
    uint64_t key;
    uint64_t granted_bytes;        /* of memory, by the caller's budget */
    const _Atomic bool *cancelled; /* nobody wants it any more: CLOSED. NULL: never */
    uint64_t needed_bytes;         /* out, with -EAGAIN */
    const uint8_t *canvas;         /* out; lent until the next call */
    uint32_t by;                   /* out: what the helper says of stk_decoder_by */
};

/* Bytes of the arena that this job touches. */
uint64_t stk_jail_arena_bytes(const struct stk_jail_job *job);
/* 0: job->canvas is there for stk_decode_convert. -EAGAIN: it takes more memory than was granted.
 * CORRUPT, too, when the decoder crashed, was too slow or talked nonsense; errno values and CLOSED
 * (within 0.1 s) are about this machine, not about the picture. */
int stk_jail_decode(struct stk_jail *jail, struct stk_jail_job *job, struct stoker_error *error);

struct stk_jail_parse {
    uint32_t encoding; /* enum stk_encoding: JSON, MSGPACK, NPZ */
    bool whole;        /* only whether it is good as a whole, see stk_value_check */
    struct stk_view bytes;
    const char *path;    /* of an npz: the array's name; else not looked at */
    uint64_t room_bytes; /* of the arena, for what is packed */
    uint64_t granted_bytes, memory_bytes_max;
    const _Atomic bool *cancelled;
    uint64_t needed_bytes;  /* out, with -EAGAIN; more than is packed */
    struct stk_view packed; /* out, but for `whole`; for stk_value_unpack; lent as a canvas */
};

/* As stk_jail_decode. MISSING, too: an npz has no such array. */
int stk_jail_parse(struct stk_jail *jail, struct stk_jail_parse *job, struct stoker_error *error);
/* Between pictures: gives the arena's memory back. */
void stk_jail_trim(struct stk_jail *jail);

#endif
