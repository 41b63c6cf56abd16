/* stoker ls: lists a data set: a line for each sample or shard, or the files below a path. */
#include "programs/cli/args.h"

#include "programs/cli/cmd_stat.h"
#include "programs/cli/command.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"
#include "programs/cli/token_report.h"

#include <string.h>
#include <strings.h>

#define KEY_BYTES_MAX 4097   /* the library's default bound, and the NUL */
#define PLACE_BYTES_MAX 4097 /* of a path */
#define MEMBERS_MAX 256      /* of a sample that are listed; others are only counted */

struct listing {
    struct stoker_dataset *dataset;
    struct stoker_dataset_info info;
    const struct args *args;
    uint64_t limit;
    char key[KEY_BYTES_MAX];
    struct stoker_member_info members[MEMBERS_MAX];
    size_t member_count; /* may be more than MEMBERS_MAX */
};

/* Sums of the current shard or class folder. */
struct shard {
    char path[PLACE_BYTES_MAX];
    uint64_t samples, members, bytes;
};

static int run(struct args *args);
static int list_buckets(const struct args *args);
static int list_samples(struct listing *listing);
static int list_shards(struct listing *listing);
static void sample_print(const struct listing *listing, uint64_t sample);
static void sample_print_json(const struct listing *listing, uint64_t sample);
static void shard_print(const struct shard *shard, bool json, bool folder);
static int sample_get(struct listing *listing, uint64_t sample, struct stoker_error *error);
static size_t are_members_known(const struct listing *listing);

const struct command command_ls = {
    .name = "ls",
    .bit = COMMAND_LS,
    .usage = "[options] PATH...",
    .summary = "List samples: key, members with bytes@offset, shard",
    .more = "Line: KEY  EXT BYTES@OFFSET  ...  SHARD. OFFSET is that of the data in the\n"
            "decompressed shard. Sizes of files in class folders are not read.\n"
            "'stoker ls s3://' lists the buckets of the credentials.\n",
    .run = run,
};

static int run(struct args *args)
{
    static struct listing listing; /* 12 kB: too much for a small stack */
    struct stoker_engine *engine = NULL;
    int status;

    if (args->path_count == 0) {
        return command_no_path(&command_ls);
    }
    if (args->path_count == 1 && strcasecmp(args->paths[0], "s3://") == 0) {
        return list_buckets(args);
    }
    if (!args->files && token_report_matches(args)) {
        return token_report_ls(args);
    }
    if (args->files) {
        status = command_open_files(args, &engine);
        for (size_t i = 0; i < args->path_count && status == EXIT_FINE; i++) {
            status = stat_list_files(engine, args, args->paths[i]);
        }
        stoker_engine_close(engine);
        return status;
    }
    status = command_open_dataset(args, &engine, &listing.dataset);
    if (status != EXIT_FINE) {
        return status;
    }
    listing.args = args;
    listing.limit = args->limit ? args->limit : UINT64_MAX;
    listing.info.struct_size = sizeof listing.info;
    stoker_dataset_info(listing.dataset, &listing.info);
    status = args->shards ? list_shards(&listing) : list_samples(&listing);
    stoker_dataset_close(listing.dataset);
    stoker_engine_close(engine);
    return status;
}

/* The buckets of the credentials: a line for each. */
static int list_buckets(const struct args *args)
{
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    char *names = NULL, url[300];
    size_t count = 0;
    int status = command_open_engine(args, &engine);

    if (status == EXIT_FINE) {
        int listed = stoker_buckets_list(engine, args->paths[0], &names, &count, &error);

        status = listed < 0 ? term_error(listed, &error) : EXIT_FINE;
    }
    for (const char *name = names; count > 0 && !term_closed(); count--) {
        snprintf(url, sizeof url, "s3://%s", name);
        if (args->json) {
            json_open(NULL, '{');
            json_str("path", url);
            json_str("kind", "bucket");
            json_close('}');
        } else {
            term_text(url);
            fputc('\n', stdout);
        }
        name += strlen(name) + 1;
    }
    stoker_paths_free(names);
    stoker_engine_close(engine);
    return status;
}

static int list_samples(struct listing *listing)
{
    for (uint64_t i = 0; i < listing->info.sample_count && i < listing->limit; i++) {
        struct stoker_error error = {0};
        int status = sample_get(listing, i, &error);
        if (status < 0) {
            return term_error(status, &error);
        }
        if (listing->args->json) {
            sample_print_json(listing, i);
        } else {
            sample_print(listing, i);
        }
        if (term_closed()) {
            break;
        }
    }
    return EXIT_FINE;
}

/* Samples are in storage order, so those of a shard are adjacent. */
static int list_shards(struct listing *listing)
{
    static struct shard shard;
    const bool folder = strcmp(listing->info.kind, "imagefolder") == 0;
    uint64_t lines = 0;

    for (uint64_t i = 0; i < listing->info.sample_count && !term_closed(); i++) {
        struct stoker_error error = {0};
        int status = sample_get(listing, i, &error);
        if (status < 0) {
            return term_error(status, &error);
        }
        const char *path = listing->member_count ? listing->members[0].shard : "";
        const char *slash = folder ? strrchr(path, '/') : NULL;
        size_t bytes = slash ? (size_t)(slash - path) : strlen(path);
        if (bytes >= sizeof shard.path) {
            bytes = sizeof shard.path - 1;
        }
        if (shard.samples && (strlen(shard.path) != bytes || memcmp(shard.path, path, bytes))) {
            shard_print(&shard, listing->args->json, folder);
            shard.samples = shard.members = shard.bytes = 0;
            if (++lines == listing->limit) {
                return EXIT_FINE;
            }
        }
        memcpy(shard.path, path, bytes);
        shard.path[bytes] = 0;
        shard.samples++;
        shard.members += listing->member_count;
        for (size_t m = 0; m < are_members_known(listing); m++) {
            uint64_t member_bytes = listing->members[m].bytes;
            shard.bytes += member_bytes == UINT64_MAX ? 0 : member_bytes;
        }
    }
    if (shard.samples && !term_closed()) {
        shard_print(&shard, listing->args->json, folder);
    }
    return EXIT_FINE;
}

static void sample_print(const struct listing *listing, uint64_t sample)
{
    (void)sample;
    term_text(listing->key);
    for (size_t m = 0; m < are_members_known(listing); m++) {
        const struct stoker_member_info *member = &listing->members[m];
        fputs("  ", stdout);
        term_text(member->extension);
        if (member->bytes != UINT64_MAX) {
            printf(" %llu@%llu", (unsigned long long)member->bytes,
                   (unsigned long long)member->offset);
        }
    }
    if (listing->member_count > are_members_known(listing)) {
        printf("  and %zu more", listing->member_count - are_members_known(listing));
    }
    if (listing->member_count) {
        fputs("  ", stdout);
        term_text(listing->members[0].shard);
    }
    fputc('\n', stdout);
}

static void sample_print_json(const struct listing *listing, uint64_t sample)
{
    json_open(NULL, '{');
    json_u64("sample", sample);
    json_str("key", listing->key);
    json_str("shard", listing->member_count ? listing->members[0].shard : "");
    json_u64("member_count", listing->member_count);
    json_open("members", '[');
    for (size_t m = 0; m < are_members_known(listing); m++) {
        const struct stoker_member_info *member = &listing->members[m];
        json_open(NULL, '{');
        json_str("extension", member->extension);
        if (member->bytes != UINT64_MAX) {
            json_u64("bytes", member->bytes);
            json_u64("offset", member->offset);
        }
        json_close('}');
    }
    json_close(']');
    json_close('}');
}

static void shard_print(const struct shard *shard, bool json, bool folder)
{
    char samples[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];

    if (json) {
        json_open(NULL, '{');
        json_str("shard", shard->path);
        json_u64("samples", shard->samples);
        json_u64("members", shard->members);
        if (!folder) {
            json_u64("bytes", shard->bytes);
        }
        json_close('}');
        return;
    }
    printf("%10s samples  %10s  ", term_count(samples, shard->samples),
           folder ? "" : term_bytes(bytes, shard->bytes));
    term_text(shard->path);
    fputc('\n', stdout);
}

static int sample_get(struct listing *listing, uint64_t sample, struct stoker_error *error)
{
    listing->member_count = MEMBERS_MAX;
    return stoker_dataset_sample(listing->dataset, sample, listing->key, sizeof listing->key,
                                 listing->members, &listing->member_count, error);
}

static size_t are_members_known(const struct listing *listing)
{
    return listing->member_count < MEMBERS_MAX ? listing->member_count : MEMBERS_MAX;
}
