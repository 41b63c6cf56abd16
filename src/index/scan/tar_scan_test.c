/* Goal: the scan finds the same members as one parser that walks the tar alone, for any guesses and
 * for cold, short or slow reads; right guesses and several tars are in flight together; a failure
 * ends its tar only, and nothing leaks.
 * Method: random tars with long names, nested tars and global headers, compared with the parser;
 * the simulated file system, which counts reads; every allocation and I/O call fails once. Covers
 * container_scan.c, container_scan_lane.c and tar_container.c. */
#include "index/scan/container_scan.h"

#include "base/mem.h"
#include "base/random.h"
#include "format/tar/tar.h"
#include "format/tar/tar_container.h"
#include "format/tar/tar_write.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TARS_MAX = 24, STARTS_MAX = 400, TEXT_BYTES_MAX = 1 << 17 };

static uint64_t dice_state;

static uint64_t dice(uint64_t sides)
{
    return stk_mix64(dice_state++) % sides;
}

/* ---- the simulated world, with reads counted --------------------------------------------- */

static struct stk_io_table counting;
static const struct stk_io_table *counted;
static int submits, in_flight, in_flight_most;

static int submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads)
{
    int taken = counted->submit(io, queue, reads);

    submits++;
    in_flight += taken;
    in_flight_most = in_flight > in_flight_most ? in_flight : in_flight_most;
    return taken;
}

static struct stk_read *reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms)
{
    struct stk_read *list = counted->reap(io, queue, timeout_ms);

    for (struct stk_read *read = list; read; read = read->next) {
        in_flight--;
    }
    return list;
}

static struct stk_io *open_world(uint32_t depth)
{
    struct stk_io_options options = {.depth = depth, .read_timeout_ms = 1000};
    struct stk_io *world = NULL;

    T_EQ("world", stk_sim_open(&world, dice_state, &options, NULL), 0);
    counted = world->table;
    counting = *counted;
    counting.submit = submit;
    counting.reap = reap;
    world->table = &counting;
    submits = in_flight = in_flight_most = 0;
    return world;
}

/* ---- tars and their contents ------------------------------------------------------------ */

struct text {
    size_t used;
    char bytes[TEXT_BYTES_MAX];
};

static void tell(struct text *text, const struct stk_tar_step *member)
{
    int bytes = snprintf(text->bytes + text->used, sizeof text->bytes - text->used,
                         "%c %.*s %llu+%llu %llu\n", member->type, (int)member->name.bytes,
                         (const char *)member->name.data, (unsigned long long)member->offset,
                         (unsigned long long)member->bytes, (unsigned long long)member->header);

    text->used = stk_min(text->used + (size_t)bytes, sizeof text->bytes - 1);
}

static void tell_end(struct text *text, int status, const struct stoker_error *error)
{
    text->used +=
        (size_t)snprintf(text->bytes + text->used, sizeof text->bytes - text->used, "= %d at %lld",
                         status, status < 0 ? (long long)error->offset : 0);
}

/* The parser's result for all the bytes; starts: first headers of members, if requested. */
static void walk(const struct t_tar *tar, struct text *text, uint64_t *starts, uint64_t *count)
{
    struct stk_view bytes = {NULL, 0};
    struct stoker_error error = {0};
    struct stk_tar *parser = NULL;
    struct stk_tar_step step;
    int status = stk_tar_open(&parser, tar->bytes, NULL, &error);

    text->used = 0;
    while (status == 0) {
        status = stk_tar_step(parser, bytes, &step, &error);
        bytes = (struct stk_view){NULL, 0};
        if (status < 0 || step.event == STK_TAR_END) {
            break;
        }
        if (step.event == STK_TAR_NEED) {
            bytes = (struct stk_view){tar->data + step.offset, tar->bytes - step.offset};
        } else {
            tell(text, &step);
            if (starts && *count < STARTS_MAX && step.header > 0) {
                starts[(*count)++] = step.header;
            }
        }
    }
    tell_end(text, status, &error);
    stk_tar_close(parser);
}

/* A header that applies to all members after it. */
static void add_global(struct t_tar *tar, const char *records)
{
    size_t at = tar->bytes;
    unsigned sum = 0;

    t_tar_add(tar, "global", records, strlen(records));
    tar->data[at + 156] = 'g';
    memset(tar->data + at + 148, ' ', 8);
    for (int i = 0; i < 512; i++) {
        sum += tar->data[at + i];
    }
    snprintf((char *)tar->data + at + 148, 8, "%06o", sum);
}

static void add_member(struct t_tar *tar, int number, size_t bytes_max)
{
    static uint8_t data[1 << 17];
    char text[300];
    int name_bytes = snprintf(text, sizeof text, "%d%.*s.jpg", number, dice(4) ? 0 : 250,
                              "/a-name-that-is-too-long-for-the-field-of-a-header-and-goes-on-and-"
                              "on/a-name-that-is-too-long-for-the-field-of-a-header-and-goes-on-"
                              "and-on/a-name-that-is-too-long-for-the-field-of-a-header-and-goes-"
                              "on-and-on/and-on");
    struct stk_view name = {(const uint8_t *)text, (size_t)name_bytes};
    uint8_t header[STK_TAR_HEADER_MAX];
    size_t bytes = dice(bytes_max), header_bytes = stk_tar_header_write(name, bytes, header);

    /* As raw blocks: t_tar_add writes short names only. */
    tar->data = realloc(tar->data, tar->bytes + header_bytes + bytes + 1024);
    tar->capacity = tar->bytes + header_bytes + bytes + 1024;
    memset(data, (int)dice(256), bytes);
    memcpy(tar->data + tar->bytes, header, header_bytes);
    memcpy(tar->data + tar->bytes + header_bytes, data, bytes);
    memset(tar->data + tar->bytes + header_bytes + bytes, 0, stk_tar_padding(bytes));
    tar->bytes += header_bytes + bytes + stk_tar_padding(bytes);
}

enum made { PLAIN, NESTED, GLOBAL, CUT, DAMAGED, MADE };

/* A tar whose members may contain other tars. */
static struct t_tar make_tar(enum made made, int members, size_t bytes_max)
{
    struct t_tar tar = {0};

    for (int i = 0; i < members; i++) {
        if (made == GLOBAL && i == members / 2) {
            add_global(&tar, "18 path=all-of-us\n");
        }
        if (made == NESTED && i % 3 == 1) {
            struct t_tar inner = make_tar(PLAIN, 4, bytes_max / 8 + 1);

            t_tar_add(&tar, "inner.tar", inner.data, inner.bytes);
            t_tar_free(&inner);
        }
        add_member(&tar, i, bytes_max);
    }
    t_tar_end(&tar);
    if (made == CUT) {
        tar.bytes -= dice(tar.bytes / 2 + 1);
    }
    if (made == DAMAGED) {
        uint64_t starts[STARTS_MAX], count = 0;
        static struct text text;

        walk(&tar, &text, starts, &count);
        tar.data[starts[count / 2] + 100] ^= 1;
    }
    return tar;
}

/* ---- a sweep over them ------------------------------------------------------------------- */

struct one {
    struct stk_container_scan_shard tar; /* first */
    struct run *run;
    int number;
    bool ended;
    int status;
    struct text text;
};

struct run {
    struct stk_io *io;
    int count, given, open, allowed; /* allowed: reads of each tar; 0: all */
    uint32_t share;                  /* of a tar, for searches */
    uint64_t bytes_read;
    bool broken; /* next fails after the last */
    struct one ones[TARS_MAX];
};

static int next(void *context, struct stk_container_scan_shard **tar_out,
                struct stoker_error *error)
{
    struct run *run = context;

    if (run->given == run->count) {
        return run->broken ? stk_fail(error, -EPIPE, "no next", "none", "test") : 0;
    }
    run->open++;
    *tar_out = &run->ones[run->given++].tar;
    return 1;
}

static int member(struct stk_container_scan_shard *tar, const struct stk_container_step *step,
                  struct stoker_error *error)
{
    struct one *one = (struct one *)(void *)tar;
    struct stk_tar_step as_tar = {.offset = step->offset,
                                  .bytes = step->bytes,
                                  .header = step->header,
                                  .name = step->name,
                                  .type = step->kind == STK_MEMBER_FILE ? '0' : '?'};

    (void)error;
    T_TRUE("not ended", !one->ended);
    tell(&one->text, &as_tar);
    return 0;
}

static int goes_on(struct stk_container_scan_shard *tar, struct stoker_error *error)
{
    struct one *one = (struct one *)(void *)tar;

    if (one->run->allowed > 0 && one->number++ == one->run->allowed) {
        return stk_fail(error, STOKER_ERROR_CLOSED, "it was stopped", "go on", "test");
    }
    return 0;
}

static void end(struct stk_container_scan_shard *tar, int status, const struct stoker_error *error)
{
    struct one *one = (struct one *)(void *)tar;

    T_TRUE("once", !one->ended);
    if (status < 0) {
        T_ERROR("end", error);
    }
    one->ended = true;
    one->status = status;
    one->run->open--;
    tell_end(&one->text, status, error);
}

static int sweep(struct run *run, struct stoker_error *error)
{
    static const struct stk_container_scan_callbacks calls = {next, member, goes_on, end};
    _Atomic uint64_t bytes_read = 0;
    struct stk_container_scan_options options = {.io = run->io,
                                                 .calls = &calls,
                                                 .context = run,
                                                 .bytes_read = &bytes_read,
                                                 .search_share = run->share};
    int status = stk_container_scan(&options, error);

    run->bytes_read = bytes_read;

    T_EQ("all have ended", run->open, 0);
    T_EQ("nothing is in flight", in_flight, 0);
    return status;
}

/* Adds a tar to the world, and to the run. */
static void add(struct run *run, const struct t_tar *tar, const uint64_t *starts, uint64_t count)
{
    struct one *one = &run->ones[run->count];
    char path[32];

    snprintf(path, sizeof path, "/%d.tar", run->count++);
    T_EQ("add", stk_sim_add(run->io, path, tar->data, tar->bytes), 0);
    *one = (struct one){.run = run};
    T_EQ("open", stk_io_open_file(run->io, path, &one->tar.file, NULL), 0);
    one->tar.format = &stk_tar_container;
    one->tar.bytes = tar->bytes;
    one->tar.starts = starts;
    one->tar.start_count = count;
}

static void close_run(struct run *run)
{
    for (int i = 0; i < run->count; i++) {
        stk_io_close_file(run->ones[i].tar.file);
    }
    stk_io_close(run->io);
    free(run);
}

static struct run *open_run(uint32_t depth)
{
    struct run *run = calloc(1, sizeof *run);

    run->io = open_world(depth);
    return run;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* Right guesses, all of them or some, with as many wrong ones. */
static uint64_t guess(const struct t_tar *tar, uint64_t *starts)
{
    static struct text text;
    uint64_t count = 0, kind = dice(4), lies;

    walk(tar, &text, starts, &count);
    lies = kind == 0 ? 0 : stk_min(count, STARTS_MAX / 2);
    count = kind == 3 ? 0 : stk_min(count, STARTS_MAX / 2);
    for (uint64_t i = 0; i < lies; i++) {
        starts[count++] = 512 * (1 + dice(tar->bytes / 512 + 1));
    }
    qsort(starts, count, sizeof *starts, compare);
    return count;
}

static void test_random(void)
{
    static const struct stk_sim_rule rules[] = {
        {.fault = STK_SIM_FAULT_COLD},
        {.fault = STK_SIM_FAULT_COLD, .every = 3},
        {.fault = STK_SIM_FAULT_SHORT, .every = 2},
        {.fault = STK_SIM_FAULT_SLOW, .every = 2, .latency_ns = 1000000},
    };
    static uint64_t starts[TARS_MAX][STARTS_MAX];
    static struct text want[TARS_MAX];
    static struct t_tar tars[TARS_MAX];
    int refuted = 0, failed = 0;

    for (int round = 0; round < 60; round++) {
        uint64_t seed = dice_state;
        struct run *run = open_run((uint32_t)(1 + dice(40)));
        int count = (int)(1 + dice(6));
        struct stoker_error error = {0};

        for (int i = 0; i < count; i++) {
            size_t bytes_max = dice(2) ? 3000 : 60000;

            tars[i] = make_tar((enum made)dice(MADE), (int)(8 + dice(30)), bytes_max);
            walk(&tars[i], &want[i], NULL, NULL);
            add(run, &tars[i], starts[i], guess(&tars[i], starts[i]));
        }
        run->share = dice(2) ? 2 : 0;
        for (size_t i = 0; i < STK_COUNT(rules); i++) {
            if (dice(2)) {
                T_EQ("rule", stk_sim_add_rule(run->io, &rules[i]), 0);
            }
        }
        T_EQ("sweep", sweep(run, &error), 0);
        for (int i = 0; i < count; i++) {
            if (!T_STR("as the parser", run->ones[i].text.bytes, want[i].bytes)) {
                printf("seed %llu\n", (unsigned long long)seed);
            }
            refuted += run->ones[i].tar.refuted != STK_CONTAINER_SCAN_NO_START;
            failed += run->ones[i].status < 0;
            t_tar_free(&tars[i]);
        }
        close_run(run);
    }
    T_TRUE("of all kinds", refuted > 20 && failed > 20);
    printf("%d tars with false guesses, %d damaged\n", refuted, failed);
}

/* The number of reads in flight, and the bytes that are read at all. */
static void test_depth(void)
{
    static const struct {
        const char *name;
        int tars;
        bool guesses, cold;
        int least, most;
        uint32_t share;
    } rows[] = {
        {"one tar", 1, false, true, 1, 1, 0},
        {"one tar with guesses", 1, true, true, 12, 32, 0},
        {"one tar with searches", 1, false, true, 6, 32, 8},
        {"little to search", 1, false, true, 2, 6, 64},
        {"tars side by side", 20, false, true, 20, 20, 256},
        {"with guesses", 20, true, true, 30, 32, 256},
        {"warm", 20, true, false, 0, 0, 8},
    };
    struct t_tar tar = make_tar(NESTED, 120, 60000);
    static uint64_t starts[STARTS_MAX];
    static struct text want;
    uint64_t count = 0, members;

    walk(&tar, &want, starts, &count);
    members = count + 1;
    for (size_t r = 0; r < STK_COUNT(rows); r++) {
        struct run *run = open_run(64);

        for (int i = 0; i < rows[r].tars; i++) {
            add(run, &tar, starts, rows[r].guesses ? count : 0);
        }
        run->share = rows[r].share;
        if (rows[r].cold) {
            stk_sim_add_rule(run->io, &(struct stk_sim_rule){.fault = STK_SIM_FAULT_SLOW,
                                                             .latency_ns = 1000000});
        }
        T_EQ(rows[r].name, sweep(run, NULL), 0);
        T_STR(rows[r].name, run->ones[rows[r].tars - 1].text.bytes, want.bytes);
        T_EQ(rows[r].name, run->ones[0].tar.refuted, STK_CONTAINER_SCAN_NO_START);
        printf("%s: %d in flight, %d submits, %.1f %% read\n", rows[r].name, in_flight_most,
               submits,
               100.0 * (double)run->bytes_read / (double)(tar.bytes * (size_t)rows[r].tars));
        /* A window for each member, an extended header, and twice the share at most. */
        T_TRUE(rows[r].name,
               !rows[r].cold ||
                   run->bytes_read <= (uint64_t)rows[r].tars *
                                          (members * 4096ull +
                                           (rows[r].share ? 2 * tar.bytes / rows[r].share : 0)));
        T_TRUE(rows[r].name, in_flight_most >= rows[r].least && in_flight_most <= rows[r].most);
        T_TRUE(rows[r].name, rows[r].cold || submits == 0);
        close_run(run);
    }
    t_tar_free(&tar);
}

/* A tar that cannot be read, or is not wanted any more, ends by itself. */
static void test_faults(void)
{
    static const struct {
        const char *name;
        struct stk_sim_rule rule;
        int allowed, status;
    } rows[] = {
        {"EIO", {.path = "/1.tar", .fault = STK_SIM_FAULT_EIO, .offset = 30000}, 0, -EIO},
        {"hang", {.path = "/1.tar", .fault = STK_SIM_FAULT_HANG}, 0, STOKER_ERROR_TIMEOUT},
        {"cut",
         {.path = "/1.tar", .fault = STK_SIM_FAULT_TRUNCATED, .offset = 20000},
         0,
         STOKER_ERROR_TRUNCATED},
        {"stopped", {.fault = STK_SIM_FAULT_COLD}, 5, STOKER_ERROR_CLOSED},
    };
    struct t_tar tar = make_tar(PLAIN, 20, 20000);
    static uint64_t starts[STARTS_MAX];
    static struct text want;
    uint64_t count = 0;

    walk(&tar, &want, starts, &count);
    for (size_t r = 0; r < STK_COUNT(rows); r++) {
        struct run *run = open_run(8);

        for (int i = 0; i < 3; i++) {
            add(run, &tar, starts, count);
        }
        run->allowed = rows[r].allowed;
        T_EQ(rows[r].name, stk_sim_add_rule(run->io, &rows[r].rule), 0);
        T_EQ(rows[r].name, sweep(run, NULL), 0);
        T_EQ(rows[r].name, run->ones[1].status, rows[r].status);
        T_EQ(rows[r].name, run->ones[2].status, rows[r].allowed ? rows[r].status : 0);
        if (rows[r].allowed == 0) {
            T_STR(rows[r].name, run->ones[0].text.bytes, want.bytes);
        }
        close_run(run);
    }
    t_tar_free(&tar);
}

/* If no further tar can be announced, those before it end normally, and the error is reported. */
static void test_next_fails(void)
{
    struct t_tar tar = make_tar(PLAIN, 20, 20000);
    struct run *run = open_run(8);
    struct stoker_error error = {0};
    static struct text want;
    uint64_t count = 0;

    walk(&tar, &want, NULL, &count);
    for (int i = 0; i < 3; i++) {
        add(run, &tar, NULL, 0);
    }
    run->broken = true;
    stk_sim_add_rule(run->io, &(struct stk_sim_rule){.fault = STK_SIM_FAULT_COLD});
    T_EQ("next fails", sweep(run, &error), -EPIPE);
    T_ERROR("next fails", &error);
    for (int i = 0; i < 3; i++) {
        T_EQ("before it", run->ones[i].status, 0);
        T_STR("before it", run->ones[i].text.bytes, want.bytes);
    }
    close_run(run);
    t_tar_free(&tar);
}

/* Each allocation, and each call of the seam, fails once. */
static void test_failures(void)
{
    struct t_tar tar = make_tar(NESTED, 12, 5000);
    static uint64_t starts[STARTS_MAX];
    static struct text want;
    uint64_t count = 0;

    walk(&tar, &want, starts, &count);
    for (int what = 0; what < 2; what++) {
        int failures = 0, passes = 0;

        for (uint64_t n = 1; passes < 3 && n < 2000; n++) {
            struct run *run = open_run(8);
            struct stoker_error error = {0};
            int status;

            for (int i = 0; i < 3; i++) {
                add(run, &tar, starts, count);
            }
            run->broken = n % 2;
            stk_sim_add_rule(run->io,
                             &(struct stk_sim_rule){.fault = STK_SIM_FAULT_COLD, .every = 2});
            if (what == 0) {
                stk_mem_fail_nth(n);
            } else {
                stk_sim_fail_nth(run->io, n);
            }
            status = sweep(run, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(run->io, 0);
            if (status < 0) {
                T_ERROR("sweep", &error);
            }
            status = status == -EPIPE ? 0 : status;
            for (int i = 0; i < run->given; i++) {
                status = status < 0 ? status : run->ones[i].status;
                if (run->ones[i].status == 0) {
                    T_STR("complete", run->ones[i].text.bytes, want.bytes);
                }
            }
            failures += status < 0;
            passes = status < 0 ? 0 : passes + 1;
            close_run(run);
        }
        printf("%s: %d places\n", what ? "calls" : "allocations", failures);
        T_TRUE("it failed, and passed", failures > 5 && passes == 3);
    }
    t_tar_free(&tar);
}

int main(int argc, char **argv)
{
    dice_state = argc > 1 ? strtoull(argv[1], NULL, 10) : 20261121;
    test_random();
    test_depth();
    test_faults();
    test_next_fails();
    test_failures();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
