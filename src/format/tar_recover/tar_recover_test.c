/* Goal: exactly those samples of a damaged tar are recovered that are certainly complete; each loss
 * is listed once, by key if the key is known; the same bytes give the same result.
 * Method: rows of damage to a tar of pairs and to one of single members, in memory, with and
 * without extended headers; then any byte of any header changed, and any truncation, compared with
 * the original; tars designed to be slow or large; failures of reads and of each allocation. Covers
 * tar_recover.c. */
#include "format/tar_recover/tar_recover.h"

#include "base/mem.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 9, BLOCK = 512, TEXT_MAX = 512 };

/* The tar as a source: plain, or as if it were packed. */
struct memory {
    const uint8_t *data;
    uint64_t bytes, fail_at; /* fail_at: reads that reach it fail; UINT64_MAX: none */
    int status;              /* with this */
    uint64_t read;           /* bytes, so far */
};

static int read_memory(void *context, uint64_t offset, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error)
{
    struct memory *memory = context;
    uint64_t left = offset < memory->bytes ? memory->bytes - offset : 0;

    *got_out = (size_t)stk_min(bytes, left);
    memory->read += *got_out;
    if (offset + *got_out > memory->fail_at || (memory->fail_at < UINT64_MAX && *got_out < bytes)) {
        return stk_fail(error, memory->status, "it fails", "try again", "here");
    }
    memcpy(buffer, memory->data + offset, *got_out);
    return 0;
}

static int run(struct stk_tar_recover *rescue, struct memory *memory, bool packed,
               struct stoker_error *error)
{
    struct stk_tar_recover_source source = {.path = "a.tar",
                                            .bytes = packed ? UINT64_MAX : memory->bytes,
                                            .context = memory,
                                            .read = read_memory};

    *rescue = (struct stk_tar_recover){0};
    return stk_tar_recover_run(rescue, &source, error);
}

/* Keys of retained samples, "k0 k1 ..."; keys of damaged ones, "?" if unknown. */
static const char *retained_text(const struct stk_tar_recover *rescue, char text[TEXT_MAX])
{
    size_t used = 0;

    text[0] = 0;
    for (uint64_t i = 0; i < rescue->sample_count; i++) {
        const struct stk_tar_recover_sample *sample = &rescue->samples[i];

        if (!sample->lost) {
            used += (size_t)snprintf(text + used, TEXT_MAX - used, "%s%.*s", used ? " " : "",
                                     (int)sample->key_bytes, rescue->text + sample->key_at);
        }
    }
    return text;
}

static const char *listed(const struct stk_tar_recover *rescue, char text[TEXT_MAX])
{
    size_t used = 0;

    text[0] = 0;
    for (uint64_t i = 0; i < rescue->bad_samples.count; i++) {
        const char *key = rescue->bad_samples.items[i]->key;

        used += (size_t)snprintf(text + used, TEXT_MAX - used, "%s%s", used ? " " : "",
                                 key[0] ? key : "?");
    }
    return text;
}

/* Samples k0 .. k8 of a jpg of 700 bytes, and a txt of 10 if pairs are requested. A sample of pairs
 * takes 5 blocks, one alone 3. */
static void make_tar(struct t_tar *tar, bool pairs)
{
    char name[32], data[700];

    memset(data, 'x', sizeof data);
    for (unsigned i = 0; i < SAMPLES; i++) {
        snprintf(name, sizeof name, "k%u.jpg", i);
        t_tar_add(tar, name, data, sizeof data);
        snprintf(name, sizeof name, i == 4 ? "k%u.TXT" : "k%u.txt", i); /* the same one */
        if (pairs) {
            t_tar_add(tar, name, data, 10);
        }
    }
    t_tar_end(tar);
}

static const struct row {
    const char *name;
    bool pairs, packed;
    uint64_t flip, cut; /* bytes; UINT64_MAX: none */
    int fail;           /* of a compressed one: the status of reads at the cut */
    const char *want, *want_listed;
} rows[] = {
    {"nothing", true, false, UINT64_MAX, UINT64_MAX, 0, "k0 k1 k2 k3 k4 k5 k6 k7 k8", ""},
    {"header of a first member", true, false, 15 * BLOCK + 20, UINT64_MAX, 0,
     "k0 k1 k2 k4 k5 k6 k7 k8", "? k3"},
    {"header of a second member", true, false, 18 * BLOCK + 20, UINT64_MAX, 0,
     "k0 k1 k2 k4 k5 k6 k7 k8", "? k3"},
    {"header of a sample of one", false, false, 9 * BLOCK + 20, UINT64_MAX, 0,
     "k0 k1 k2 k4 k5 k6 k7 k8", "?"},
    {"the first header", false, false, 20, UINT64_MAX, 0, "k1 k2 k3 k4 k5 k6 k7 k8", "?"},
    {"no tar from its first byte on", false, false, 257, UINT64_MAX, 0, "k1 k2 k3 k4 k5 k6 k7 k8",
     "?"},
    {"the last header", false, false, 24 * BLOCK + 20, UINT64_MAX, 0, "k0 k1 k2 k3 k4 k5 k6 k7",
     "?"},
    {"data is not looked at", true, false, 16 * BLOCK + 20, UINT64_MAX, 0,
     "k0 k1 k2 k3 k4 k5 k6 k7 k8", ""},
    {"cut in the data of a first member", true, false, UINT64_MAX, 16 * BLOCK + 5, 0, "k0 k1 k2",
     "k3"},
    {"cut in the data of a second member", true, false, UINT64_MAX, 19 * BLOCK + 5, 0, "k0 k1 k2",
     "k3"},
    {"cut in a header", true, false, UINT64_MAX, 18 * BLOCK + 100, 0, "k0 k1 k2", "? k3"},
    {"cut between two members", true, false, UINT64_MAX, 18 * BLOCK, 0, "k0 k1 k2", "? k3"},
    {"cut between two samples", true, false, UINT64_MAX, 20 * BLOCK, 0, "k0 k1 k2 k3", "?"},
    {"no bytes", true, false, UINT64_MAX, 0, 0, "", "?"},
    {"packed, cut", true, true, UINT64_MAX, 16 * BLOCK + 5, STOKER_ERROR_TRUNCATED, "k0 k1 k2",
     "k3"},
    {"packed, damaged", true, true, UINT64_MAX, 16 * BLOCK + 5, STOKER_ERROR_CORRUPT, "",
     "? k0 k1 k2 k3"},
    {"packed, a header", true, true, 15 * BLOCK + 20, UINT64_MAX, 0, "", "? k0 k1 k2"},
};

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct t_tar tar = {0};
        struct memory memory = {.fail_at = UINT64_MAX};
        struct stk_tar_recover rescue;
        struct stoker_error error = {0};
        char text[TEXT_MAX];

        make_tar(&tar, row->pairs);
        if (row->flip < UINT64_MAX) {
            tar.data[row->flip] ^= 1;
        }
        memory.data = tar.data;
        memory.bytes = stk_min(tar.bytes, row->cut);
        if (row->fail) {
            memory.fail_at = memory.bytes;
            memory.status = row->fail;
        }
        T_EQ(row->name, run(&rescue, &memory, row->packed, &error), 0);
        T_STR(row->name, retained_text(&rescue, text), row->want);
        T_STR(row->name, listed(&rescue, text), row->want_listed);
        for (uint64_t i = 0; i < rescue.bad_samples.count; i++) {
            T_STR(row->name, rescue.bad_samples.items[i]->shard, "a.tar");
            T_TRUE(row->name, rescue.bad_samples.items[i]->sample == STOKER_NO_SAMPLE);
        }
        stk_tar_recover_deinit(&rescue);
        t_tar_free(&tar);
    }
}

/* Each retained sample has all its members at their places, whatever was changed. */
static void check_retained(const struct stk_tar_recover *rescue, const struct t_tar *tar,
                           uint64_t at)
{
    for (uint64_t i = 0; i < rescue->member_count; i++) {
        const struct stk_tar_recover_member *member = &rescue->members[i];
        struct stk_view name = stk_tar_recover_name(rescue, i);
        unsigned number = 0;

        if (!stk_tar_recover_is_intact(rescue, i) || name.bytes != 6) {
            continue;
        }
        number = (unsigned)(name.data[1] - '0');
        if (!T_TRUE("its place",
                    member->offset ==
                            (uint64_t)(number * 5 + (name.data[3] == 'j' ? 1 : 4)) * BLOCK &&
                        member->offset + member->bytes <= tar->bytes)) {
            printf("byte %llu\n", (unsigned long long)at);
        }
    }
    for (uint64_t i = 0; i < rescue->sample_count; i++) {
        uint64_t members = 0;

        for (uint64_t j = 0; j < rescue->member_count; j++) {
            members += rescue->members[j].sample == i;
        }
        T_TRUE("a retained sample has both", rescue->samples[i].lost || members == 2);
    }
}

/* Any byte of any header is changed, and the tar is cut anywhere: at most two samples are lost for
 * one changed byte that hides no other header. */
static void test_all_bytes(void)
{
    struct t_tar tar = {0};
    struct memory memory = {.fail_at = UINT64_MAX};
    char text[TEXT_MAX];

    make_tar(&tar, true);
    memory.data = tar.data;
    for (uint64_t at = 0; at < tar.bytes; at += 7) {
        struct stk_tar_recover rescue;
        struct stoker_error error = {0};

        tar.data[at] ^= 0x10;
        memory.bytes = tar.bytes;
        T_EQ("changed", run(&rescue, &memory, false, &error), 0);
        check_retained(&rescue, &tar, at);
        T_TRUE("most stay", strlen(retained_text(&rescue, text)) >= 3 * 7 - 1);
        stk_tar_recover_deinit(&rescue);
        tar.data[at] ^= 0x10;
        memory.bytes = at;
        T_EQ("cut", run(&rescue, &memory, false, &error), 0);
        check_retained(&rescue, &tar, at);
        T_TRUE("listed", rescue.bad_samples.count > 0 || at >= tar.bytes - 2 * BLOCK);
        stk_tar_recover_deinit(&rescue);
    }
    t_tar_free(&tar);
}

/* ---- headers before a header ---- */

/* Changes the last added member to `type`, with another size. */
static void turn(struct t_tar *tar, size_t at, char type, const char *size)
{
    uint8_t *header = tar->data + at;
    unsigned sum = 0;

    header[156] = (uint8_t)type;
    snprintf((char *)header + 124, 12, "%s", size);
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++) {
        sum += header[i];
    }
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* As tars have names that fit no header: PAX has it, the header another one. 4 blocks. */
static void add_named(struct t_tar *tar, unsigned number, const char *extension)
{
    char text[64], record[64];
    size_t at = tar->bytes;

    snprintf(record, sizeof record, "18 path=long%u.%s\n", number, extension);
    snprintf(text, sizeof text, "%011o", (unsigned)strlen(record));
    t_tar_add(tar, "pax", record, strlen(record));
    turn(tar, at, 'x', text);
    snprintf(text, sizeof text, "l%u.%s", number, extension);
    t_tar_add(tar, text, "x", 1);
}

static const struct named_row {
    const char *name;
    bool pairs;
    uint64_t flip; /* block of 4 a member */
    const char *want, *want_listed;
} named_rows[] = {
    {"nothing", true, UINT64_MAX, "long0 long1 long2 long3 long4 long5 long6 long7 long8", ""},
    /* The remaining member has another name, or the member with the name is missing. */
    {"one that names a first member", true, 24, "long0 long1 long2 long4 long5 long6 long7 long8",
     "? l3 long3"},
    {"one that names a second member", true, 28, "long0 long1 long2 long4 long5 long6 long7 long8",
     "? long3 l3"},
    {"a name", true, 25, "long0 long1 long2 long4 long5 long6 long7 long8", "? l3 long3"},
    {"a first member's own", true, 26, "long0 long1 long2 long4 long5 long6 long7 long8",
     "? long3"},
    {"one that names a sample of one", false, 12, "long0 long1 long2 long4 long5 long6 long7 long8",
     "? l3"},
    {"the name of a sample of one", false, 13, "long0 long1 long2 long4 long5 long6 long7 long8",
     "? l3"},
    {"a sample of one, its own", false, 14, "long0 long1 long2 long4 long5 long6 long7 long8", "?"},
};

/* No sample is retained under a wrong name. */
static void test_names(void)
{
    T_EACH(named_row, row, named_rows)
    {
        struct t_tar tar = {0};
        struct memory memory = {.fail_at = UINT64_MAX};
        struct stk_tar_recover rescue;
        struct stoker_error error = {0};
        char text[TEXT_MAX];

        for (unsigned i = 0; i < SAMPLES; i++) {
            add_named(&tar, i, "jpg");
            if (row->pairs) {
                add_named(&tar, i, "txt");
            }
        }
        t_tar_end(&tar);
        if (row->flip < UINT64_MAX) {
            tar.data[row->flip * BLOCK] ^= 0x40;
        }
        memory.data = tar.data;
        memory.bytes = tar.bytes;
        T_EQ(row->name, run(&rescue, &memory, false, &error), 0);
        T_STR(row->name, retained_text(&rescue, text), row->want);
        T_STR(row->name, listed(&rescue, text), row->want_listed);
        stk_tar_recover_deinit(&rescue);
        t_tar_free(&tar);
    }
}

/* ---- a tar that was made to be slow, or large ---- */

/* Headers that are right but for one number: each is a place of damage. */
static void test_places(void)
{
    struct t_tar tar = {0};
    struct memory memory = {.fail_at = UINT64_MAX};
    struct stk_tar_recover rescue;
    struct stoker_error error = {0};
    char text[TEXT_MAX];

    t_tar_add(&tar, "j.jpg", "x", 1);
    t_tar_add(&tar, "k.jpg", "x", 1); /* as the one that is certainly complete */
    for (unsigned i = 0; i < STK_TAR_RECOVER_DAMAGES_MAX + 5; i++) {
        size_t at = tar.bytes;

        t_tar_add(&tar, "k1.jpg", NULL, 0);
        turn(&tar, at, '0', "no number");
    }
    t_tar_add(&tar, "k2.jpg", "x", 1);
    t_tar_end(&tar);
    memory.data = tar.data;
    memory.bytes = tar.bytes;
    T_EQ("places", run(&rescue, &memory, false, &error), 0);
    T_STR("places", retained_text(&rescue, text), "j k");
    T_EQ("places", rescue.bad_samples.count, STK_TAR_RECOVER_DAMAGES_MAX);
    T_HAS("the last", rescue.bad_samples.items[rescue.bad_samples.count - 1]->what,
          "the rest is skipped");
    stk_tar_recover_deinit(&rescue);
    t_tar_free(&tar);
}

/* Extended headers of a MiB, each in the one before it: nothing is read again and again. */
static void test_read_once(void)
{
    struct t_tar tar = {0};
    struct memory memory = {.fail_at = UINT64_MAX};
    struct stk_tar_recover rescue;
    struct stoker_error error = {0};

    for (unsigned i = 0; i < 4096; i++) {
        size_t at = tar.bytes;

        t_tar_add(&tar, "k1.jpg", "no record", 9);
        turn(&tar, at, 'x', "00004000000");
    }
    t_tar_end(&tar);
    memory.data = tar.data;
    memory.bytes = tar.bytes;
    T_EQ("once", run(&rescue, &memory, false, &error), 0);
    T_TRUE("once", rescue.bad_samples.count > 0 && memory.read < 2 * tar.bytes);
    stk_tar_recover_deinit(&rescue);
    t_tar_free(&tar);
}

/* A failure of the machine is not damage; and there is no leak. */
static void test_failures(void)
{
    struct t_tar tar = {0};
    struct memory memory = {.fail_at = 9 * BLOCK, .status = -EIO};
    struct stk_tar_recover rescue;
    struct stoker_error error = {0};
    uint64_t failures = 0;
    int64_t alive;
    int passes = 0;

    make_tar(&tar, true);
    tar.data[15 * BLOCK + 20] ^= 1;
    memory.data = tar.data;
    memory.bytes = tar.bytes;
    T_EQ("EIO", run(&rescue, &memory, false, &error), -EIO);
    T_ERROR("EIO", &error);
    stk_tar_recover_deinit(&rescue);
    memory.fail_at = UINT64_MAX;
    alive = stk_mem_alive();
    for (uint64_t n = 1; passes < 2; n++) {
        stk_mem_fail_nth(n);
        error = (struct stoker_error){0};
        if (run(&rescue, &memory, false, &error) < 0) {
            T_EQ("memory", error.status, -ENOMEM);
            T_ERROR("memory", &error);
            failures++;
        } else {
            passes++;
        }
        stk_mem_fail_nth(0);
        stk_tar_recover_deinit(&rescue);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
    T_TRUE("failures", failures >= 7);
    t_tar_free(&tar);
}

/* Each damage is reported with its offset in the tar, also after the first one. */
static void test_offsets(void)
{
    static const uint64_t blocks[] = {6, 15, 21};
    struct t_tar tar = {0};
    struct memory memory = {.fail_at = UINT64_MAX};
    struct stk_tar_recover rescue;
    struct stoker_error error = {0};
    size_t at = 0;

    make_tar(&tar, false);
    for (size_t i = 0; i < STK_COUNT(blocks); i++) {
        tar.data[blocks[i] * BLOCK + 20] ^= 1;
    }
    memory.data = tar.data;
    memory.bytes = tar.bytes;
    T_EQ("offsets", run(&rescue, &memory, false, &error), 0);
    for (uint64_t i = 0; i < rescue.bad_samples.count; i++) {
        uint64_t offset = rescue.bad_samples.items[i]->offset;

        if (T_TRUE("no more", at < STK_COUNT(blocks))) {
            T_EQ("offsets", offset / BLOCK, blocks[at]);
        }
        at++;
    }
    T_EQ("all", at, STK_COUNT(blocks));
    stk_tar_recover_deinit(&rescue);
    t_tar_free(&tar);
}

static void test_losses(void)
{
    static const uint32_t shards[] = {5, 1, 9, 3};
    struct stk_tar_losses losses = {0};

    for (size_t i = 0; i < STK_COUNT(shards); i++) {
        struct stk_bad_sample_list damages = {0};

        for (uint64_t j = 0; j < 2; j++) {
            struct stoker_error error = {0};

            stk_fail(&error, STOKER_ERROR_CORRUPT, "x", "y", "z");
            T_EQ("add",
                 stk_bad_sample_list_add(&damages, stk_bad_sample_new(10 * shards[i] + j, &error)),
                 0);
        }
        T_EQ("add", stk_tar_losses_add(&losses, shards[i], &damages), 0);
    }
    T_EQ("count", losses.count, 8);
    for (uint64_t i = 1; i < 8; i++) {
        T_TRUE("in order",
               stk_tar_losses_get(&losses, i - 1)->sample < stk_tar_losses_get(&losses, i)->sample);
    }
    T_TRUE("the end", stk_tar_losses_get(&losses, 8) == NULL);
    stk_tar_losses_deinit(&losses);
}

int main(void)
{
    test_rows();
    test_all_bytes();
    test_names();
    test_places();
    test_read_once();
    test_failures();
    test_offsets();
    test_losses();
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
