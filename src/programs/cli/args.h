/* programs/cli/args.h: parses the command line into struct args. One table defines all options of
 * all commands, so that parsing, advice and `stoker help` agree.
 *
 *   argv --args_parse--> struct args --command_open_dataset--> engine + data set
 *
 * Owner: main. Threads: one. Memory: the filters; the array of paths is argv itself.
 * Bound: argv. */
#ifndef PROGRAMS_CLI_ARGS_H
#define PROGRAMS_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stoker/stoker.h>

/* Exit statuses, the same for every command. */
enum exit_status {
    EXIT_FINE = 0,
    EXIT_FINDINGS = 1,    /* the data set is damaged, or lacks the requested item */
    EXIT_USAGE = 2,       /* the command line is invalid */
    EXIT_ENVIRONMENT = 3, /* files, memory, kernel: the command itself is valid */
    EXIT_SIGNAL = 128,    /* plus its number: Ctrl-C is 130 */
};

/* Commands that accept an option. */
enum command_bit {
    COMMAND_LS = 1,
    COMMAND_CAT = 2,
    COMMAND_INFO = 4,
    COMMAND_BENCH = 8,
    COMMAND_INDEX = 32,
    COMMAND_PACK = 64,
    COMMAND_VERIFY = 128,
    COMMAND_DIFF = 256,
    COMMAND_ORDER = 512,
    COMMAND_SAMPLE = 1024,
    COMMAND_CREDS = 2048,
    COMMAND_CP = 4096,
    COMMAND_SYNC = 8192,
    COMMAND_RM = 16384,
    COMMAND_STAT = 32768,
    COMMAND_BENCH_STORE = 65536,
    COMMAND_PREWARM = 131072,
    COMMAND_CKPT = 262144,
    COMMAND_PRESIGN = 524288,
    COMMAND_MV = 1048576,
    COMMAND_CLEAN = 2097152,
    COMMAND_CACHE = 4194304,
};

#define ARGS_FILTERS_MAX 256u

struct args {
    const char *const *paths;
    size_t path_count;
    const char *name; /* of cat: KEY[.ext] */
    /* The option table in args.c writes the fields below; 0 means that the option is absent. */
    uint64_t batch, image, threads, limit, epochs, seed, window_blocks, home_groups;
    uint64_t memory_bytes, network_fs_threads;
    bool system_files;
    double seconds;
    bool put;
    double read_seconds; /* 0: the default */
    uint64_t bad_samples_max;
    double bad_share_max;
    uint64_t dtype, layout, shuffle, on_error, io, direct; /* enums of stoker.h, as uint64_t */
    uint64_t stored;                                       /* enum stoker_dtype */
    const char *fields, *quarantine, *out;
    uint64_t index;                            /* enum stoker_index_use */
    uint64_t foreign_index;                    /* enum stoker_foreign_index_use */
    uint64_t shard_bytes, short_side, quality; /* of pack */
    const char *pattern, *shuffle_seed;
    bool keep_order;
    const char *staging_dir; /* of pack */
    bool json, shards, raw, cold, help;
    bool deep, repair, keep_unverified, reread;
    bool rescue;                   /* opens the data set even if tars are damaged */
    bool checksums, labels, force; /* of index */
    uint64_t seek_interval_bytes;  /* of index; 1: default */
    uint64_t jpeg_index_mcus;      /* 1: one entry point a row of MCUs; 0: no JPEG index */
    /* of order */
    uint64_t world_size, nodes, tail, epoch, samples, block_samples, random_runs;
    uint64_t order_version;
    const char *labels_path;
    const char *at, *rank, *find, *diff, *world_sizes, *scenario, *mix;
    uint64_t mix_end, mix_epoch;
    bool verify, simulate, single_source_steps;
    const char *subset, *weights, *balance, *curriculum; /* of sample and order */
    uint64_t repeats, repeat_distance, epoch_samples;    /* of order */
    bool replacement;
    /* of files */
    uint64_t workers, part_bytes, check;
    uint64_t budget_bytes, rate_bytes; /* of prewarm */
    const char *node;
    const char *storage_class, *encryption, *encryption_key, *encryption_context;
    /* "+PATTERN", "-PATTERN", in the order given; args_free frees them. */
    const char *filters[ARGS_FILTERS_MAX];
    size_t filter_count;
    uint64_t compare, bandwidth; /* enum stoker_copy_compare; bytes a second */
    const char *files_from;
    bool recursive, update, no_clobber, delete_extra, unfinished_uploads, yes, files;
    bool filesystem;                        /* of info */
    const char *sizes, *concurrency, *plot; /* of bench store */
    uint64_t bytes_max;
    bool write;
    bool check_only, touch; /* of prewarm */
    uint64_t chunk_bytes;
    const char *step, *keep_best, *to, *from, *html; /* of ckpt, as the next ones */
    double save_seconds, mtbf, restart_seconds;
    uint64_t keep_last, keep_every;
    bool all, dry_run;
    const char *cache; /* folders of the node cache, separated by ':'; NULL: STOKER_CACHE_DIR */
    uint64_t cache_bytes;
};

/* A command of `stoker`. */
struct command {
    const char *name;
    const char *old_name; /* a hidden alias: the name of an earlier version; NULL: none */
    uint32_t bit;
    const char *usage;   /* after "stoker NAME " */
    const char *summary; /* one line */
    const char *more;    /* further lines of its help */
    int (*run)(struct args *args);
    /* In place of run: receives the words unparsed, including --help. NULL: run. */
    int (*run_words)(int argc, char **argv);
};

/* Parses argv (without the names of program and command); moves the paths to its front. Returns
 * EXIT_FINE, or prints an error and returns EXIT_USAGE. */
int args_parse(struct args *args, const struct command *command, int argc, char **argv);
void args_free(struct args *args); /* zeroed is allowed */
/* Overwrites settings in args, like "seed=1,window-blocks=128". A text option must be the last one
 * and takes the rest of the text, which is borrowed. Returns as args_parse. */
int args_change(struct args *args, const struct command *command, const char *settings);
/* Parses a whole number, digits only. Returns false if it is none. */
bool args_number(const char *text, uint64_t *value_out);
/* The same with an optional unit: 512, 64K, 1M. */
bool args_size(const char *text, uint64_t *value_out);
/* Prints the help of a command, options included. */
void args_help(FILE *out, const struct command *command);
/* Returns the word of `words` (NULL-terminated) with the smallest edit distance to `typed`; NULL if
 * none is similar. */
const char *args_nearest(const char *typed, const char *const *words);

/* Names of enum values, as the options spell them, for tables. */
const char *args_dtype_name(uint64_t dtype);
const char *args_shuffle_name(uint64_t shuffle);
const char *args_tail_name(uint64_t tail);
uint64_t args_dtype_bytes(uint64_t dtype);

extern const struct command command_ls, command_cat, command_info, command_bench, command_pack;
extern const struct command command_index, command_verify, command_diff, command_order;
extern const struct command command_sample, command_creds, command_fault;
extern const struct command command_bench_store; /* "bench store" */
extern const struct command command_ckpt, command_clean, command_cache;
extern const struct command command_prewarm, command_cp, command_mv, command_sync, command_rm,
    command_stat, command_presign;

#endif
