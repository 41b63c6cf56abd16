/* Serves one command after the other, for one worker of one engine. */
#include "programs/decode_helper/helper_serve.h"

#include "decode/sandbox/helper_protocol.h"
#include "format/value/value.h"
#include "programs/decode_helper/helper_confine.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
    stk_helper_serve_hook *first; /* NULL: none */
    struct stk_image_decoder *decoder;
    uint8_t *arena;
    uint64_t arena_bytes;
    struct stk_transform_plan *plan; /* of the last command */
    union {
        struct stk_helper_decode_request command;
        struct stk_helper_parse_request parse;
    } received;
    struct stk_helper_decode_request planned;
    struct stk_helper_reply answer;
};

/* Scratch memory that is reused for the next image. */
#define KEEP_BYTES (4u << 20)

static int prepare(struct server *server, const struct stk_helper_handshake *hello)
{
    void *arena;

    /* If the worker dies, the kernel kills this process. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != hello->parent) {
        return -1;
    }
    arena = mmap(NULL, hello->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                 STK_HELPER_ARENA, 0);
    if (arena == MAP_FAILED) {
        return -1;
    }
    server->arena = arena;
    server->arena_bytes = hello->arena_bytes;
    return stk_image_decoder_open(&server->decoder, hello->vector, NULL);
}

static bool begin(struct server *server)
{
    struct stk_helper_handshake hello;
    struct stk_helper_handshake_reply ready = {.protocol = STK_HELPER_PROTOCOL};
    const char *step = "shared memory, or the parent";

    if (recv(STK_HELPER_SOCKET, &hello, sizeof hello, MSG_TRUNC) != sizeof hello ||
        hello.protocol != STK_HELPER_PROTOCOL) {
        return false;
    }
    stk_value_start();
    ready.status = prepare(server, &hello);
    if (ready.status == 0) {
        ready.status = stk_helper_confine(&ready.landlock, &step);
    }
    snprintf(ready.step, sizeof ready.step, "%s (%d)", step, ready.status);
    return send(STK_HELPER_SOCKET, &ready, sizeof ready, MSG_NOSIGNAL) == sizeof ready &&
           ready.status == 0;
}

/* The parts of a command that make its plan. */
static bool same_plan(const struct stk_helper_decode_request *a,
                      const struct stk_helper_decode_request *b)
{
    return a->transform_count == b->transform_count && a->dtype == b->dtype &&
           a->layout == b->layout && a->exif == b->exif && a->planar == b->planar &&
           a->pixel_format == b->pixel_format && a->check == b->check &&
           a->pixels_max == b->pixels_max && a->memory_bytes_max == b->memory_bytes_max &&
           memcmp(a->transforms, b->transforms, a->transform_count * sizeof *a->transforms) == 0;
}

static int choose_plan(struct server *server, struct stoker_error *error)
{
    const struct stk_helper_decode_request *command = &server->received.command;
    struct stk_transform_plan_options options = {.transforms = command->transforms,
                                                 .transform_count = command->transform_count,
                                                 .dtype = command->dtype,
                                                 .layout = command->layout,
                                                 .exif = command->exif,
                                                 .planar = command->planar,
                                                 .pixel_format = command->pixel_format,
                                                 .check = command->check,
                                                 .pixels_max = command->pixels_max,
                                                 .memory_bytes_max = command->memory_bytes_max};

    if (server->plan && same_plan(command, &server->planned)) {
        return 0;
    }
    stk_transform_plan_close(server->plan);
    server->planned = *command;
    return stk_transform_plan_open(&server->plan, &options, error);
}

/* Returns true if the image and the canvas are inside of the arena. */
static bool fits(const struct server *server)
{
    const struct stk_helper_decode_request *command = &server->received.command;
    uint64_t canvas_bytes = stk_image_decode_canvas_bytes(server->plan);

    return command->bytes <= command->canvas_offset &&
           command->canvas_offset <= server->arena_bytes &&
           canvas_bytes <= server->arena_bytes - command->canvas_offset;
}

/* ---- images ---- */

static int decode(struct server *server, struct stoker_error *error)
{
    const struct stk_helper_decode_request *command = &server->received.command;
    struct stk_view bytes = {server->arena, command->bytes};
    uint64_t ticket = 0;
    int status = choose_plan(server, error);

    if (status < 0) {
        return status;
    }
    if (!fits(server)) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the image is larger than the sandbox",
                        "grant the engine more memory", "%llu bytes",
                        (unsigned long long)command->bytes);
    }
    status = server->first ? server->first(bytes, error) : 0;
    status =
        status < 0 ? status : stk_image_decode_memory_bytes(server->plan, bytes, &ticket, error);
    ticket = stk_min(ticket, command->memory_bytes_max); /* larger images are refused */
    if (status == 0 && ticket > command->granted_bytes) {
        server->answer.kind = STK_HELPER_NEEDS_MEMORY;
        server->answer.value = ticket;
        return 0;
    }
    if (status == 0) {
        status = stk_image_decode_canvas(server->decoder, server->plan, bytes, command->key,
                                         server->arena + command->canvas_offset, error);
        server->answer.value = status == 0 ? stk_image_decoder_decoded_by(server->decoder) : 0;
    }
    if (ticket > KEEP_BYTES) {
        stk_image_decoder_trim(server->decoder, KEEP_BYTES);
    }
    return status;
}

/* ---- members ---- */

/* Returns true if [offset, offset + bytes) is inside of the arena. */
static bool in_arena(const struct server *server, uint64_t offset, uint64_t bytes)
{
    return offset <= server->arena_bytes && bytes <= server->arena_bytes - offset;
}

static int pack(struct server *server, const struct stk_value *value, struct stoker_error *error)
{
    const struct stk_helper_parse_request *received = &server->received.parse;

    return received->check_only
               ? value->tree ? stk_value_validate(value, error) : 0
               : stk_value_serialize(value, server->arena + received->buffer_offset,
                                     received->buffer_bytes, &server->answer.value, error);
}

static int parse(struct server *server, struct stoker_error *error)
{
    const struct stk_helper_parse_request *received = &server->received.parse;
    struct stk_view bytes = {server->arena, received->bytes};
    const char *path = (const char *)server->arena + received->path_offset;
    struct stk_value value;
    uint64_t ticket, need;
    int status;

    if (!in_arena(server, 0, received->bytes) ||
        !in_arena(server, received->path_offset, received->path_bytes + 1) ||
        !in_arena(server, received->buffer_offset, received->buffer_bytes) ||
        path[received->path_bytes] != 0) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a member is larger than the sandbox",
                        "grant the engine more memory", "%llu bytes",
                        (unsigned long long)received->bytes);
    }
    status = server->first ? server->first(bytes, error) : 0;
    status = status < 0 ? status
                        : stk_value_memory_bytes(received->encoding, bytes, path, &ticket, error);
    if (status < 0) {
        return status;
    }
    /* Memory of the parsed value and of the packed result: at most its ticket and its bytes. */
    need = 2 * stk_min(ticket, UINT64_MAX / 4) + received->bytes;
    if (need > received->granted_bytes && ticket <= received->memory_bytes_max) {
        server->answer.kind = STK_HELPER_NEEDS_MEMORY;
        server->answer.value = need;
        return 0;
    }
    status =
        stk_value_open(&value, received->encoding, bytes, path, received->memory_bytes_max, error);
    if (status == 0) {
        status = pack(server, &value, error);
        stk_value_close(&value);
    }
    return status;
}

/* ---- commands ---- */

static bool answer(struct server *server)
{
    struct stoker_error error = {.offset = STOKER_NO_OFFSET};
    size_t bytes = STK_HELPER_REPLY_HEAD;
    int status;

    memset(&server->answer, 0, sizeof server->answer);
    server->answer.protocol = STK_HELPER_PROTOCOL;
    server->answer.sequence = server->received.command.sequence;
    server->answer.kind = STK_HELPER_DONE;
    status = server->received.command.work == STK_HELPER_PARSE ? parse(server, &error)
                                                               : decode(server, &error);
    if (status < 0) {
        server->answer.kind = STK_HELPER_FAILED;
        server->answer.status = status;
        server->answer.value = error.offset;
        memcpy(server->answer.what, error.what, sizeof error.what);
        memcpy(server->answer.where, error.where, sizeof error.where);
        memcpy(server->answer.advice, error.advice, sizeof error.advice);
        bytes = sizeof server->answer;
    }
    return send(STK_HELPER_SOCKET, &server->answer, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool next_command(struct server *server)
{
    struct stk_helper_decode_request *command = &server->received.command;
    ssize_t got = recv(STK_HELPER_SOCKET, &server->received, sizeof server->received, MSG_TRUNC);

    if (got < (ssize_t)offsetof(struct stk_helper_decode_request, transform_count) ||
        command->protocol != STK_HELPER_PROTOCOL) {
        return false;
    }
    if (command->work == STK_HELPER_PARSE) {
        return got == sizeof(struct stk_helper_parse_request);
    }
    return command->work == STK_HELPER_DECODE &&
           command->transform_count <= STK_TRANSFORM_PLAN_MAX &&
           (size_t)got == STK_HELPER_DECODE_REQUEST_HEAD +
                              command->transform_count * sizeof *command->transforms;
}

int stk_helper_serve(stk_helper_serve_hook *first)
{
    static struct server server; /* some KiB: not on the stack of a decoder */

    server.first = first;
    if (!begin(&server)) {
        return 1;
    }
    while (next_command(&server) && answer(&server)) {
    }
    return 0;
}
