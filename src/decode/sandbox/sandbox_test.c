/* Goal: the same pixels with the sandbox as without, for any plan; a compromised decoder can only
 * fail its own image, soon, and the next one is decoded; nothing leaks.
 * Method: images made here, decoded both ways; stoker-decode-test, whose images can name an action
 * that it then tries (see rogue_main.c); /proc for the resources of a helper; processes that are
 * killed. Covers helper_process.c. */
#include "decode/sandbox/sandbox.h"

#include "base/mem.h"
#include "base/random.h"
#include "decode/sandbox/helper_protocol.h"
#include "format/value/value.h"
#include "test/t.h"

#include <dirent.h>
#include <errno.h>
#include <jpeglib.h>
#include <limits.h>
#include <png.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 200u
#define ARENA_BYTES (64ull << 20)
#define GRANTED (4u << 20)
#define FILE_MAX (1u << 20)

static char rogue[PATH_MAX];
static uint8_t png_file[FILE_MAX];
static struct stk_view png, jpeg;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int count_descriptors(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(list)) {
        count++;
    }
    closedir(list);
    return count;
}

static void make_pictures(uint32_t width, uint32_t height)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB};
    size_t bytes = sizeof png_file;
    uint8_t *rgb = stk_alloc((size_t)width * height, 3);
    struct jpeg_compress_struct in = {0};
    struct jpeg_error_mgr errors;
    static unsigned char *memory;
    unsigned long memory_bytes = 0;

    for (size_t i = 0; i < (size_t)width * height * 3; i++) {
        rgb[i] = (uint8_t)(i / 3 % width + i / 3 / width + stk_mix64(i) % 32);
    }
    T_TRUE("png", png_image_write_to_memory(&image, png_file, &bytes, 0, rgb, 0, NULL));
    png = (struct stk_view){png_file, bytes};
    in.err = jpeg_std_error(&errors);
    jpeg_create_compress(&in);
    jpeg_mem_dest(&in, &memory, &memory_bytes);
    in.image_width = width;
    in.image_height = height;
    in.input_components = 3;
    in.in_color_space = JCS_RGB;
    jpeg_set_defaults(&in);
    jpeg_start_compress(&in, TRUE);
    for (uint32_t y = 0; y < height; y++) {
        JSAMPROW row = rgb + (size_t)y * width * 3;

        jpeg_write_scanlines(&in, &row, 1);
    }
    jpeg_finish_compress(&in);
    jpeg_destroy_compress(&in);
    jpeg = (struct stk_view){memory, memory_bytes};
    stk_free(rgb);
}

static struct stk_transform_plan *open_plan(const struct stoker_transform *transforms, size_t count,
                                            uint32_t dtype, uint32_t layout)
{
    struct stk_transform_plan_options options = {.transforms = transforms,
                                                 .transform_count = count,
                                                 .dtype = dtype,
                                                 .layout = layout,
                                                 .exif = true,
                                                 .pixels_max = 1u << 26,
                                                 .memory_bytes_max = 256u << 20};
    struct stk_transform_plan *plan = NULL;
    struct stoker_error error = {0};

    if (stk_transform_plan_open(&plan, &options, &error) < 0) {
        T_STR("plan", error.what, "");
    }
    return plan;
}

static struct stk_transform_plan *small_plan(void)
{
    static const struct stoker_transform resize = {
        .kind = STOKER_RESIZE, .height = 32, .width = 32, .filter = STOKER_BILINEAR};

    return open_plan(&resize, 1, STOKER_UINT8, STOKER_NCHW);
}

static struct stk_sandbox *open_sandbox(const char *helper, uint32_t vector)
{
    struct stk_sandbox_options options = {
        .helper = helper, .arena_bytes = ARENA_BYTES, .timeout_ms = TIMEOUT_MS, .vector = vector};
    struct stk_sandbox *sandbox = NULL;
    struct stoker_error error = {0};

    if (stk_sandbox_open(&sandbox, &options, &error) < 0) {
        T_STR(error.where, error.what, "");
    }
    return sandbox;
}

static int decode(struct stk_sandbox_worker *jail, const struct stk_transform_plan *plan,
                  struct stk_view bytes, const uint8_t **canvas_out, struct stoker_error *error)
{
    struct stk_sandbox_decode_job job = {
        .plan = plan, .bytes = bytes, .key = 5, .granted_bytes = GRANTED};
    int status = stk_sandbox_worker_decode(jail, &job, error);

    if (status == -EAGAIN) {
        job.granted_bytes = job.needed_bytes;
        status = stk_sandbox_worker_decode(jail, &job, error);
    }
    *canvas_out = job.canvas;
    return status;
}

/* ---- the same pixels ---- */

static const struct stoker_transform chain[] = {
    {.kind = STOKER_RANDOM_RESIZED_CROP,
     .height = 61,
     .width = 47,
     .filter = STOKER_BILINEAR,
     .scale = {0.1, 1},
     .ratio = {0.75, 1.3333}},
    {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
    {.kind = STOKER_RANDOM_VERTICAL_FLIP, .probability = 0.5},
    {.kind = STOKER_COLOR_JITTER,
     .brightness = {0.6, 1.4},
     .contrast = {0.6, 1.4},
     .saturation = {0.6, 1.4},
     .hue = {-0.1, 0.1}},
    {.kind = STOKER_NORMALIZE, .mean = {0.5f, 0.4f, 0.3f}, .std = {0.2f, 0.3f, 0.4f}},
};

static void same_pixels(struct stk_sandbox_worker *jail, struct stk_image_decoder *decoder,
                        const struct stk_transform_plan *plan, struct stk_view bytes)
{
    struct stk_image_shape shape;

    stk_transform_plan_shape(plan, &shape);
    uint8_t *want = stk_alloc(shape.slot_bytes, 1), *got = stk_alloc(shape.slot_bytes, 1);
    for (uint64_t key = 0; key < 8; key++) {
        struct stk_sandbox_decode_job job = {
            .plan = plan, .bytes = bytes, .key = key, .granted_bytes = GRANTED};

        T_EQ("direct", stk_image_decode(decoder, plan, bytes, key, want, NULL), 0);
        memset(got, 0x5a, shape.slot_bytes);
        if (T_EQ("jail", stk_sandbox_worker_decode(jail, &job, NULL), 0)) {
            stk_image_decode_convert(decoder, plan, job.canvas, got);
        }
        T_TRUE("pixels", memcmp(want, got, shape.slot_bytes) == 0);
    }
    stk_free(want);
    stk_free(got);
}

static void test_pixels(uint32_t vector)
{
    static const uint32_t dtypes[] = {STOKER_UINT8, STOKER_FLOAT32, STOKER_FLOAT16,
                                      STOKER_BFLOAT16};
    struct stk_sandbox *sandbox = open_sandbox(NULL, vector);
    struct stk_sandbox_worker *jail;
    struct stk_image_decoder *decoder;

    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    T_EQ("decoder", stk_image_decoder_open(&decoder, vector, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(dtypes); i++) {
        for (uint32_t layout = STOKER_NCHW; layout <= STOKER_NHWC; layout++) {
            for (size_t count = 1; count <= STK_COUNT(chain); count++) {
                struct stk_transform_plan *plan;

                if (dtypes[i] == STOKER_UINT8 && count == STK_COUNT(chain)) {
                    continue; /* normalised values are not bytes */
                }
                plan = open_plan(chain, count, dtypes[i], layout);
                same_pixels(jail, decoder, plan, png);
                same_pixels(jail, decoder, plan, jpeg);
                stk_transform_plan_close(plan);
            }
        }
    }
    T_EQ("one helper for all", stk_sandbox_worker_starts(jail), 1);
    stk_image_decoder_close(decoder);
    stk_sandbox_worker_close(jail);
    stk_sandbox_close(sandbox);
}

/* ---- hostile decoders ---- */

static void test_rogue(void)
{
    static const char forbidden[] = "what it may not do";
    static const char nonsense[] = "nonsense";
    static const struct row {
        const char *what; /* it tries */
        const char *says; /* the error */
        bool costs;       /* a helper */
        uint32_t most_ms;
    } rows[] = {
        {"crash", "crashed", true, 1000},
        {"abort", "on this image", true, 1000}, /* the sanitizers end it themselves */
        {"exit", "ended", true, 1000},
        {"loop", "did not end", true, 8 * TIMEOUT_MS},
        {"sleep", "did not end", true, 8 * TIMEOUT_MS},
        {"open", forbidden, true, 1000},
        {"create", forbidden, true, 1000},
        {"socket", forbidden, true, 1000},
        {"exec", forbidden, true, 1000},
        {"fork", forbidden, true, 1000},
        {"ptrace", forbidden, true, 1000},
        {"kill", forbidden, true, 1000},
        {"write", forbidden, true, 1000},
        {"shrink", forbidden, true, 1000},
        {"limits", forbidden, true, 1000},
        {"memory", forbidden, true, 1000},
        {"uring", forbidden, true, 1000},
        {"unlink", forbidden, true, 1000},
        {"code", forbidden, true, 1000},
        {"answer status", nonsense, true, 1000},
        {"answer positive", nonsense, true, 1000},
        {"answer kind", nonsense, true, 1000},
        {"answer sequence", nonsense, true, 1000},
        {"answer short", nonsense, true, 1000},
        {"answer needs", nonsense, true, 1000},
    };
    struct stk_sandbox *sandbox = open_sandbox(rogue, 0);
    struct stk_transform_plan *plan = small_plan();
    const uint8_t *canvas;
    struct stk_sandbox_worker *jail;

    T_EACH(row, row, rows)
    {
        char text[64];
        struct stoker_error error = {0};
        uint64_t starts, begin = now_ms();
        int length = snprintf(text, sizeof text, "ROGUE %s", row->what);

        T_EQ(row->what, stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
        T_EQ(
            row->what,
            decode(jail, plan, (struct stk_view){(uint8_t *)text, (size_t)length}, &canvas, &error),
            STOKER_ERROR_CORRUPT);
        T_ERROR(row->what, &error);
        /* If the sanitizers' system calls are allowed, others are refused without a kill. */
        if (strcmp(error.what, "refused") != 0) {
            T_HAS(row->what, error.what, row->says);
            T_EQ(row->what, stk_sandbox_worker_process(jail) == 0, row->costs);
        }
        T_TRUE(row->what, now_ms() - begin <= row->most_ms + 1000);
        starts = stk_sandbox_worker_starts(jail);
        T_EQ(row->what, decode(jail, plan, png, &canvas, &error), 0);
        T_TRUE(row->what, stk_sandbox_worker_starts(jail) <= starts + 1);
        stk_sandbox_worker_close(jail);
    }
    stk_transform_plan_close(plan);
    stk_sandbox_close(sandbox);
}

static void test_text(void)
{
    static const char text[] = "ROGUE answer text", greedy[] = "ROGUE answer greedy";
    struct stk_sandbox *sandbox = open_sandbox(rogue, 0);
    struct stk_transform_plan *plan = small_plan();
    struct stoker_error error = {0};
    struct stk_sandbox_decode_job job = {.plan = plan, .granted_bytes = GRANTED};
    const uint8_t *canvas;
    struct stk_sandbox_worker *jail;

    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    T_EQ("text",
         decode(jail, plan, (struct stk_view){(const uint8_t *)text, sizeof text - 1}, &canvas,
                &error),
         STOKER_ERROR_CORRUPT);
    T_EQ("ended", strlen(error.what), sizeof error.what - 1);
    T_EQ("ended", strlen(error.where), sizeof error.where - 1);
    T_TRUE("no escapes", !strpbrk(error.what, "\033") && !strpbrk(error.advice, "\n"));
    T_TRUE("offset", error.offset == STOKER_NO_OFFSET);
    stk_sandbox_worker_close(jail);

    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    job.bytes = (struct stk_view){(const uint8_t *)greedy, sizeof greedy - 1};
    T_EQ("greedy", stk_sandbox_worker_decode(jail, &job, &error), -EAGAIN);
    stk_sandbox_worker_close(jail);
    stk_transform_plan_close(plan);
    stk_sandbox_close(sandbox);
}

/* ---- members ---- */

/* Parsed in the helper: the result is that of the document; the same helper decodes the images. */
static void test_parse(void)
{
    static const char json[] = "{\"a\": [1, 2, {\"b\": 7}]}";
    static const char mp[] = "\x81\xa1\x61\x93\x01\x02\x07";
    static const struct row {
        const char *name;
        uint32_t encoding;
        const char *text;
        size_t bytes;
        const char *path;
        int status;
    } rows[] = {
        {"json", STK_VALUE_JSON, json, sizeof json - 1, "a.2.b", 0},
        {"msgpack", STK_VALUE_MSGPACK, mp, sizeof mp - 1, "a.2", 0},
        {"cut json", STK_VALUE_JSON, json, sizeof json - 3, "", STOKER_ERROR_TRUNCATED},
        {"cut msgpack", STK_VALUE_MSGPACK, mp, sizeof mp - 3, "", STOKER_ERROR_TRUNCATED},
        {"no npz", STK_VALUE_NPZ, json, sizeof json - 1, "", STOKER_ERROR_FORMAT},
        {"nothing", STK_VALUE_JSON, "", 0, "", STOKER_ERROR_TRUNCATED},
    };
    struct stk_sandbox *sandbox = open_sandbox(NULL, 0);
    struct stk_sandbox_worker *jail;

    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    T_EACH(row, row, rows)
    {
        struct stk_view bytes = {(const uint8_t *)row->text, row->bytes};
        struct stk_sandbox_parse_job job = {.encoding = row->encoding,
                                            .bytes = bytes,
                                            .buffer_bytes = 1 << 16,
                                            .granted_bytes = 1 << 16,
                                            .memory_bytes_max = 1 << 20};
        struct stoker_error error = {0}, other = {0};
        struct stk_value value, part;
        int64_t number = 0;

        T_EQ(row->name, stk_sandbox_worker_parse(jail, &job, &error), row->status);
        if (row->status < 0) { /* and the words are those of the parser itself */
            stk_value_open(&value, row->encoding, bytes, "", 1 << 20, &other);
            T_STR(row->name, error.what, other.what);
            T_EQ(row->name, error.offset, other.offset);
            continue;
        }
        T_EQ(row->name, stk_value_deserialize(&value, row->encoding, bytes, job.packed, &error), 0);
        T_EQ(row->name, stk_value_find(&value, row->path, &part, &error), 0);
        stk_value_int(&part, &number, &error);
        T_EQ(row->name, number, 7);
        stk_value_close(&value);
        job.check_only = true;
        T_EQ(row->name, stk_sandbox_worker_parse(jail, &job, &error), 0);
        T_EQ(row->name, job.packed.bytes, 0);
        job.granted_bytes = 100;
        T_EQ(row->name, stk_sandbox_worker_parse(jail, &job, &error), -EAGAIN);
        T_TRUE(row->name, job.needed_bytes > 100);
        job.memory_bytes_max = 100;
        T_EQ(row->name, stk_sandbox_worker_parse(jail, &job, &error), STOKER_ERROR_LIMIT);
    }
    T_EQ("one helper for all", stk_sandbox_worker_starts(jail), 1);
    stk_sandbox_worker_close(jail);
    stk_sandbox_close(sandbox);
}

/* Crashes, loops, forbidden calls and wrong replies of a parser: damage of the member, soon; the
 * next is parsed. Impossible sizes in a reply are refused. */
static void test_rogue_members(void)
{
    static const char *const names[] = {"crash",      "exit",   "loop",        "open",
                                        "socket",     "unlink", "answer kind", "answer sequence",
                                        "answer huge"};
    struct stk_sandbox *sandbox = open_sandbox(rogue, 0);
    struct stk_sandbox_worker *jail;

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        struct stk_sandbox_parse_job job = {.encoding = STK_VALUE_JSON,
                                            .buffer_bytes = 1 << 16,
                                            .granted_bytes = 1 << 16,
                                            .memory_bytes_max = 1 << 20};
        struct stoker_error error = {0};
        char text[64];
        int length = snprintf(text, sizeof text, "ROGUE %s", names[i]);

        T_EQ(names[i], stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
        job.bytes = (struct stk_view){(const uint8_t *)text, (size_t)length};
        T_EQ(names[i], stk_sandbox_worker_parse(jail, &job, &error), STOKER_ERROR_CORRUPT);
        T_ERROR(names[i], &error);
        T_TRUE(names[i], strcmp(error.what, "refused") == 0 || strstr(error.what, "the parser"));
        job.bytes = (struct stk_view){(const uint8_t *)"[1]", 3};
        T_EQ(names[i], stk_sandbox_worker_parse(jail, &job, &error), 0);
        stk_sandbox_worker_close(jail);
    }
    stk_sandbox_close(sandbox);
}

/* ---- resources of a helper ---- */

static void has_line(int process, const char *line)
{
    char path[64], text[8192] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", process);
    file = fopen(path, "r");
    if (T_TRUE(path, file != NULL)) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        T_HAS(path, text, line);
        fclose(file);
    }
}

/* The kernel's limit of a process, from /proc/PID/limits. */
static void has_limit(int process, const char *name, long long want)
{
    char path[64], line[256];
    long long soft = -1, hard = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/limits", process);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), "%lld %lld", &soft, &hard) == 2) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    T_EQ(name, soft, want);
    T_EQ(name, hard, want);
}

static void test_confined(void)
{
    struct stk_sandbox *sandbox = open_sandbox(NULL, 0);
    struct stk_transform_plan *plan = small_plan();
    const uint8_t *canvas;
    struct stk_sandbox_worker *jail;
    struct stoker_error error = {0};
    char path[64];
    DIR *list;
    int first;

    T_HAS("name", stk_sandbox_name(sandbox), "seccomp");
    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    T_EQ("not before it is needed", stk_sandbox_worker_process(jail), 0);
    T_EQ("decode", decode(jail, plan, jpeg, &canvas, &error), 0);
    first = stk_sandbox_worker_process(jail);
    has_line(first, "NoNewPrivs:\t1");
    has_line(first, "Seccomp:\t2");
    has_line(first, "CapEff:\t0000000000000000");
    has_limit(first, "Max file size", 0);
    has_limit(first, "Max open files", STK_HELPER_ARENA + 1);
    has_limit(first, "Max core file size", 0);
    snprintf(path, sizeof path, "/proc/%d/fd", first);
    list = opendir(path);
    for (struct dirent *entry = list ? readdir(list) : NULL; entry; entry = readdir(list)) {
        T_TRUE(entry->d_name, entry->d_name[0] == '.' || strcmp(entry->d_name, "3") == 0 ||
                                  strcmp(entry->d_name, "4") == 0);
    }
    if (list) {
        closedir(list);
    }
    /* Killed by others (the kernel for memory, a person): the picture is not to blame. */
    kill(first, SIGKILL);
    T_EQ("again", decode(jail, plan, jpeg, &canvas, &error), 0);
    T_TRUE("another",
           stk_sandbox_worker_process(jail) != first && stk_sandbox_worker_starts(jail) == 2);
    stk_sandbox_worker_close(jail);
    stk_transform_plan_close(plan);
    stk_sandbox_close(sandbox);
}

/* ---- limits and ends ---- */

static void test_limits(void)
{
    struct stk_sandbox *sandbox = open_sandbox(NULL, 0);
    struct stk_transform_plan *plan = small_plan();
    struct stk_sandbox_decode_job job = {.plan = plan, .bytes = jpeg};
    struct stoker_error error = {0};
    const uint8_t *canvas;
    struct stk_sandbox_worker *jail;

    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    T_EQ("requests memory first", stk_sandbox_worker_decode(jail, &job, &error), -EAGAIN);
    T_TRUE("requests memory first", job.needed_bytes > 0);
    job.bytes.bytes = ARENA_BYTES;
    T_EQ("too large", stk_sandbox_worker_decode(jail, &job, &error), STOKER_ERROR_LIMIT);
    job.bytes.bytes = SIZE_MAX;
    T_EQ("too large", stk_sandbox_worker_decode(jail, &job, &error), STOKER_ERROR_LIMIT);
    T_EQ("empty", decode(jail, plan, (struct stk_view){NULL, 0}, &canvas, &error) < 0, true);
    T_EQ("cut", decode(jail, plan, (struct stk_view){jpeg.data, 300}, &canvas, &error) < 0, true);
    T_ERROR("cut", &error);
    T_EQ("one helper for all", stk_sandbox_worker_starts(jail), 1);
    stk_sandbox_worker_trim(jail);
    T_EQ("after trim", decode(jail, plan, jpeg, &canvas, &error), 0);
    stk_sandbox_worker_close(jail);
    stk_transform_plan_close(plan);
    stk_sandbox_close(sandbox);
}

static void test_helpers(void)
{
    static const char *const names[] = {"/no/such/helper", "/bin/true", "/bin/cat"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        struct stk_sandbox_options options = {
            .helper = names[i], .arena_bytes = ARENA_BYTES, .timeout_ms = TIMEOUT_MS};
        struct stoker_error error = {0};
        struct stk_sandbox *sandbox;

        T_TRUE(names[i], stk_sandbox_open(&sandbox, &options, &error) < 0 && !sandbox);
        T_ERROR(names[i], &error);
        T_HAS(names[i], error.where, names[i]);
    }
}

__attribute__((format(printf, 2, 3))) static void write_file(const char *path, const char *format,
                                                             ...)
{
    FILE *file = fopen(path, "w");
    va_list list;

    va_start(list, format);
    if (T_TRUE(path, file != NULL)) {
        vfprintf(file, format, list);
        fclose(file);
    }
    va_end(list);
}

/* Killed from outside before it is ready, a few times or for ever: no damage of the image, and no
 * error if a helper starts in the end. */
static void test_killed_early(void)
{
    static const struct row {
        const char *name;
        int kills, want;
        uint64_t want_starts;
    } rows[] = {{"once", 1, 0, 2}, {"twice", 2, 0, 3}, {"always", 9, -ENOMEM, 3}};
    struct stk_transform_plan *plan = small_plan();
    char folder[] = "/tmp/sandbox_testXXXXXX", path[64], command[64];

    T_TRUE("folder", mkdtemp(folder) != NULL);
    T_EACH(row, row, rows)
    {
        struct stk_sandbox *sandbox;
        struct stk_sandbox_worker *jail = NULL;
        struct stoker_error error = {0};
        const uint8_t *canvas;

        snprintf(path, sizeof path, "%s/helper", folder);
        T_EQ("helper", symlink(rogue, path), 0);
        sandbox = open_sandbox(path, STOKER_SIMD_AUTO);
        T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, &error), 0);
        unlink(path); /* a script takes its place: each file with a number is a kill */
        write_file(path,
                   "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do\n"
                   "[ -e %s/$i ] && /bin/rm %s/$i && kill -9 $$\ndone\nexec '%s'\n",
                   folder, folder, rogue);
        chmod(path, 0700);
        for (int i = 1; i <= row->kills; i++) {
            snprintf(path, sizeof path, "%s/%d", folder, i);
            write_file(path, "x");
        }
        T_EQ(row->name, decode(jail, plan, png, &canvas, &error), row->want);
        T_EQ(row->name, stk_sandbox_worker_starts(jail), row->want_starts);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
        }
        stk_sandbox_worker_close(jail);
        stk_sandbox_close(sandbox);
        snprintf(command, sizeof command, "rm -r %s/*", folder);
        T_EQ("clean", system(command), 0);
    }
    T_EQ("clean", rmdir(folder), 0);
    stk_transform_plan_close(plan);
}

static void *stop_soon(void *sandbox)
{
    usleep(50000);
    stk_sandbox_stop(sandbox);
    return NULL;
}

static void test_stop(void)
{
    static const char loop[] = "ROGUE loop";
    struct stk_sandbox_options options = {
        .helper = rogue, .arena_bytes = ARENA_BYTES, .timeout_ms = 60000};
    struct stk_transform_plan *plan = small_plan();
    struct stoker_error error = {0};
    struct stk_sandbox *sandbox;
    const uint8_t *canvas;
    struct stk_sandbox_worker *jail;
    pthread_t thread;
    uint64_t begin;

    T_EQ("sandbox", stk_sandbox_open(&sandbox, &options, &error), 0);
    T_EQ("jail", stk_sandbox_worker_open(&jail, sandbox, NULL), 0);
    T_EQ("decode", decode(jail, plan, png, &canvas, &error), 0);
    begin = now_ms();
    pthread_create(&thread, NULL, stop_soon, sandbox);
    T_EQ("stop",
         decode(jail, plan, (struct stk_view){(const uint8_t *)loop, sizeof loop - 1}, &canvas,
                &error),
         STOKER_ERROR_CLOSED);
    stk_sandbox_worker_close(jail);
    T_TRUE("before the deadline", now_ms() - begin < options.timeout_ms / 2);
    pthread_join(thread, NULL);
    stk_sandbox_close(sandbox);
    stk_transform_plan_close(plan);
}

/* When an engine's process is killed, its helper ends, too, even if it loops. */
static void test_orphan(void)
{
    static const char loop[] = "ROGUE loop";
    int ends[2], helper = 0;
    pid_t process;

    T_EQ("pipe", pipe(ends), 0);
    process = fork();
    if (process == 0) {
        struct stk_sandbox_options options = {
            .helper = rogue, .arena_bytes = ARENA_BYTES, .timeout_ms = 60000};
        struct stk_transform_plan *plan = small_plan();
        struct stk_sandbox *sandbox;
        const uint8_t *canvas;
        struct stk_sandbox_worker *jail;

        if (stk_sandbox_open(&sandbox, &options, NULL) == 0 &&
            stk_sandbox_worker_open(&jail, sandbox, NULL) == 0 &&
            decode(jail, plan, png, &canvas, NULL) == 0) {
            helper = stk_sandbox_worker_process(jail);
            (void)!write(ends[1], &helper, sizeof helper);
            decode(jail, plan, (struct stk_view){(const uint8_t *)loop, sizeof loop - 1}, &canvas,
                   NULL);
        }
        _exit(1);
    }
    close(ends[1]);
    T_EQ("helper", read(ends[0], &helper, sizeof helper), sizeof helper);
    close(ends[0]);
    usleep(50000);
    T_EQ("alive", kill(helper, 0), 0);
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
    for (int i = 0; i < 100 && helper > 0 && kill(helper, 0) == 0; i++) {
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", helper);
        FILE *file = fopen(path, "r");
        if (file) { /* a zombie that was not waited for is dead, too */
            state = fscanf(file, "%*d %*s %c", &state) == 1 ? state : 0;
            fclose(file);
        }
        if (state == 'Z') {
            helper = 0;
        }
        usleep(10000);
    }
    T_TRUE("gone", helper == 0 || kill(helper, 0) < 0);
}

static void test_fail_nth(void)
{
    struct stk_transform_plan *plan = small_plan();
    bool failed = true;

    for (uint64_t n = 1; failed && n < 50; n += T_STRIDE) {
        struct stk_sandbox_options options = {.arena_bytes = ARENA_BYTES, .timeout_ms = TIMEOUT_MS};
        struct stoker_error error = {0};
        struct stk_sandbox *sandbox = NULL;
        const uint8_t *canvas;
        struct stk_sandbox_worker *jail = NULL;
        struct stk_sandbox_parse_job parse = {.encoding = STK_VALUE_JSON,
                                              .buffer_bytes = 4096,
                                              .granted_bytes = 1 << 16,
                                              .memory_bytes_max = 1 << 20,
                                              .bytes = {(const uint8_t *)"{\"a\": [1]}", 10}};
        struct stk_value value = {0};
        int status;

        stk_mem_fail_nth(n);
        status = stk_sandbox_open(&sandbox, &options, &error);
        status = status < 0 ? status : stk_sandbox_worker_open(&jail, sandbox, &error);
        status = status < 0 ? status : decode(jail, plan, png, &canvas, &error);
        status = status < 0 ? status : stk_sandbox_worker_parse(jail, &parse, &error);
        status = status < 0 ? status
                            : stk_value_deserialize(&value, STK_VALUE_JSON, parse.bytes,
                                                    parse.packed, &error);
        stk_mem_fail_nth(0);
        stk_value_close(&value);
        failed = status < 0;
        if (failed) {
            T_ERROR("fail-nth", &error);
        }
        stk_sandbox_worker_close(jail);
        stk_sandbox_close(sandbox);
    }
    T_TRUE("fail-nth", !failed);
    stk_transform_plan_close(plan);
}

int main(void)
{
    ssize_t length = readlink("/proc/self/exe", rogue, sizeof rogue - 64);
    int64_t alive = stk_mem_alive();
    int descriptors = count_descriptors();
    char *slash;

    rogue[length < 0 ? 0 : length] = 0;
    slash = strrchr(rogue, '/');
    snprintf(slash ? slash + 1 : rogue, 64, "stoker-decode-test");
    if (access(rogue, X_OK) < 0) {
        t_skip("stoker-decode-test is not built");
    }
    make_pictures(300, 200);
    test_pixels(STOKER_SIMD_NONE);
    if (strcmp(stk_image_decode_vector(STOKER_SIMD_AUTO), "avx2") == 0) {
        test_pixels(STOKER_SIMD_AVX2);
    }
    test_rogue();
    test_text();
    test_parse();
    test_rogue_members();
    test_confined();
    test_limits();
    test_helpers();
    test_killed_early();
    test_stop();
    test_orphan();
    test_fail_nth();
    T_EQ("memory", stk_mem_alive(), alive);
    T_EQ("descriptors", count_descriptors(), descriptors);
    T_EQ("children", waitpid(-1, NULL, WNOHANG), -1);
    free((void *)(uintptr_t)jpeg.data);
    return t_finish();
}
