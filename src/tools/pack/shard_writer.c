/* The shard writer: writes samples of the caller, one after the other, into a staging folder. */
#include "base/crypto/key_set.h"
#include "base/mem.h"
#include "base/options.h"
#include "engine/engine.h"
#include "format/tar/tar_write.h"
#include "format/tar/wds_name.h"
#include "tools/pack/pack_plan.h"
#include "tools/pack/shard_file.h"
#include "tools/pack/staging.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define SHARD_BYTES_DEFAULT (256u << 20)
#define SHARD_BYTES_MIN 4096u
#define EXTENSION_BYTES_MAX 255u
#define CLASSES_MAX (1u << 24)

struct stoker_shard_writer {
    struct stoker_engine *engine; /* held */
    struct stk_staging staging;
    char *pattern;  /* owned */
    char **classes; /* owned, each too */
    uint64_t class_count, shard_bytes;
    struct stk_shard_file *out; /* owned: the shard in work; NULL: none */
    struct stk_key_set keys;
    uint64_t shard_count; /* finished */
    uint64_t position;    /* samples in them */
    char *resume_key;     /* owned: of the last one at open */
    char *name;           /* owned: of the member in work */
    size_t name_capacity;
    bool failed, committed;
};

static int resolve(struct stoker_shard_writer *writer,
                   const struct stoker_shard_writer_options *options, struct stoker_error *error);
static int open_part(struct stoker_shard_writer *writer,
                     const struct stoker_shard_writer_options *options, struct stoker_error *error);
static int find_finished(struct stoker_shard_writer *writer, struct stoker_error *error);
static int find_complete(struct stoker_shard_writer *writer, struct stoker_error *error);
static int check_sample(struct stoker_shard_writer *writer, const char *key,
                        const struct stoker_shard_member *members, size_t member_count,
                        struct stoker_error *error);
static int make_name(struct stoker_shard_writer *writer, const char *key, const char *extension,
                     struct stk_view *name_out, struct stoker_error *error);
static int write_sample(struct stoker_shard_writer *writer, const char *key,
                        const struct stoker_shard_member *members, size_t member_count,
                        struct stoker_error *error);
static int finish_shard(struct stoker_shard_writer *writer, struct stoker_error *error);

int stoker_shard_writer_open(struct stoker_shard_writer **writer_out, struct stoker_engine *engine,
                             const struct stoker_shard_writer_options *options,
                             struct stoker_error *error)
{
    struct stoker_shard_writer_options full;
    struct stoker_shard_writer *writer;
    int status = stk_engine_check(engine, error);

    *writer_out = NULL;
    status = status < 0
                 ? status
                 : stk_options_read(&full, sizeof full,
                                    offsetof(struct stoker_shard_writer_options, shard_bytes),
                                    options, "shard writer options", error);
    if (status < 0) {
        return status;
    }
    if (!full.destination) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no destination is set", "set destination",
                        "shard writer options");
    }
    writer = stk_alloc(1, sizeof *writer);
    if (!writer) {
        return stk_fail_memory(error, "shard writer");
    }
    stk_engine_retain(engine);
    writer->engine = engine;
    status = resolve(writer, &full, error);
    status = status < 0 ? status : open_part(writer, &full, error);
    if (status < 0) {
        stoker_shard_writer_close(writer);
        return status;
    }
    *writer_out = writer;
    return 0;
}

static int resolve(struct stoker_shard_writer *writer,
                   const struct stoker_shard_writer_options *options, struct stoker_error *error)
{
    writer->shard_bytes = options->shard_bytes ? options->shard_bytes : SHARD_BYTES_DEFAULT;
    writer->pattern = stk_strdup(options->pattern ? options->pattern : "shard-%06d.tar");
    if (writer->shard_bytes < SHARD_BYTES_MIN || options->class_count > CLASSES_MAX ||
        (options->class_count > 0 && !options->classes)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an option is out of its range",
                        "use shards of 4 KiB or more", "shard writer options");
    }
    writer->classes = stk_alloc(stk_max(options->class_count, 1), sizeof *writer->classes);
    if (!writer->pattern || !writer->classes) {
        return stk_fail_memory(error, "shard writer");
    }
    for (; writer->class_count < options->class_count; writer->class_count++) {
        char *name = stk_strdup(options->classes[writer->class_count]);

        if (!name) {
            return stk_fail_memory(error, "shard writer");
        }
        writer->classes[writer->class_count] = name;
    }
    return stk_shard_pattern_check(writer->pattern, error);
}

void stoker_shard_writer_close(struct stoker_shard_writer *writer)
{
    if (!writer || stk_engine_check(writer->engine, NULL) < 0) {
        return;
    }
    stk_shard_file_close(writer->out);
    stk_staging_close(&writer->staging);
    stk_key_set_deinit(&writer->keys);
    for (uint64_t i = 0; i < writer->class_count; i++) {
        stk_free(writer->classes[i]);
    }
    stk_free(writer->classes);
    stk_free(writer->pattern);
    stk_free(writer->resume_key);
    stk_free(writer->name);
    stk_engine_release(writer->engine);
    stk_free(writer);
}

uint64_t stoker_shard_writer_position(const struct stoker_shard_writer *writer)
{
    return writer->position;
}

const char *stoker_shard_writer_resume_key(const struct stoker_shard_writer *writer)
{
    return writer->resume_key;
}

/* Converts a text to JSON. Returns NULL on failure, and sets *status_out. */
static json_t *make_text(const char *text, const char *what, int *status_out,
                         struct stoker_error *error)
{
    json_t *value = json_string(text);

    if (!value) {
        *status_out = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the text is not UTF-8",
                               "encode it as UTF-8", "%s: '%.200s'", what, text);
    }
    return value;
}

/* Settings that determine the bytes, except the samples, for the plan file and the manifest. */
static json_t *make_settings(const struct stoker_shard_writer *writer, const char *source_text,
                             int *status_out, struct stoker_error *error)
{
    json_t *source = make_text(source_text ? source_text : "", "source", status_out, error);
    json_t *classes = json_array(), *settings = NULL;

    for (uint64_t i = 0; *status_out == 0 && i < writer->class_count; i++) {
        json_t *name = make_text(writer->classes[i], "name of a class", status_out, error);

        if (name && json_array_append_new(classes, name) < 0) {
            *status_out = stk_fail_memory(error, "shard writer");
        }
    }
    if (*status_out == 0) {
        settings = json_pack("{s:s, s:I, s:s, s:O, s:O}", "by", "writer", "shard_bytes",
                             (json_int_t)writer->shard_bytes, "pattern", writer->pattern, "classes",
                             classes, "source", source);
        *status_out = settings ? 0 : stk_fail_memory(error, "shard writer");
    }
    json_decref(classes);
    json_decref(source);
    return settings;
}

static int open_part(struct stoker_shard_writer *writer,
                     const struct stoker_shard_writer_options *options, struct stoker_error *error)
{
    int status = 0;
    json_t *settings = make_settings(writer, options->source, &status, error);

    if (status == 0) {
        status = stk_staging_open(&writer->staging, writer->engine->io, options->destination,
                                  settings, "", error);
    }
    json_decref(settings);
    if (status < 0) {
        return status;
    }
    if (writer->staging.state != STK_STAGING_OPEN) {
        return find_complete(writer, error);
    }
    writer->resume_key = stk_strdup("");
    return writer->resume_key ? find_finished(writer, error)
                              : stk_fail_memory(error, "shard writer");
}

/* Adds the keys of a finished shard: they may not occur again, and the writer resumes after the
 * last one. */
static int add_keys(struct stoker_shard_writer *writer, const struct stk_shard_done *done)
{
    struct stk_view key = {NULL, 0}, extension;
    char *text;

    for (uint64_t i = 0; i < done->member_count; i++) {
        struct stk_view member = {done->text + done->members[i].name_at,
                                  done->members[i].name_bytes};

        if (stk_wds_name_split(member, &key, &extension) &&
            stk_key_set_add(&writer->keys, key) < 0) {
            return -ENOMEM;
        }
    }
    text = stk_alloc(key.bytes + 1, 1);
    if (!text) {
        return -ENOMEM;
    }
    if (key.bytes > 0) {
        memcpy(text, key.data, key.bytes);
    }
    stk_free(writer->resume_key);
    writer->resume_key = text;
    return 0;
}

/* Shards without a gap from the first: the caller continues after their last sample. */
static int find_finished(struct stoker_shard_writer *writer, struct stoker_error *error)
{
    const uint64_t shards_max = stk_shard_pattern_max(writer->pattern);
    char name[STK_SHARD_NAME_MAX];
    int status = 1;

    while (status == 1 && writer->shard_count < shards_max) {
        struct stk_shard_done done;

        stk_shard_pattern_name(writer->pattern, writer->shard_count, name, sizeof name);
        status = stk_shard_done_read(&done, writer->staging.files, writer->staging.directory, name,
                                     writer->staging.plan, error);
        if (status == 1 && add_keys(writer, &done) < 0) {
            status = stk_fail_memory(error, "shard writer");
        }
        if (status == 1) {
            writer->shard_count++;
            writer->position += done.samples;
        }
        stk_shard_done_deinit(&done);
    }
    return status < 0 ? status : 0;
}

/* The run was killed in the commit: all samples are present, and only commit remains to be
 * called. */
static int find_complete(struct stoker_shard_writer *writer, struct stoker_error *error)
{
    struct stk_manifest manifest;
    int status = stk_staging_manifest(&writer->staging, &manifest, error);

    writer->position = manifest.samples;
    writer->shard_count = manifest.shard_count;
    stk_manifest_deinit(&manifest);
    return status;
}

static int check_open(const struct stoker_shard_writer *writer, struct stoker_error *error)
{
    int status = stk_engine_check(writer->engine, error);

    if (status == 0 && (writer->failed || writer->committed)) {
        status = stk_fail(error, STOKER_ERROR_CLOSED,
                          writer->failed ? "the writer failed before"
                                         : "the writer was already committed",
                          writer->failed ? "open it again and continue at its position"
                                         : "open one with another destination",
                          "shard writer");
    }
    return status;
}

int stoker_shard_writer_add(struct stoker_shard_writer *writer, const char *key,
                            const struct stoker_shard_member *members, size_t member_count,
                            struct stoker_error *error)
{
    int status = check_open(writer, error);

    if (status == 0 && writer->staging.state == STK_STAGING_COMPLETE) {
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "all samples were already added",
                     "skip as many samples as position says, then commit", "key '%.200s'", key);
    }
    status = status < 0 ? status : check_sample(writer, key, members, member_count, error);
    if (status < 0) {
        return status;
    }
    status = write_sample(writer, key, members, member_count, error);
    writer->failed = status < 0 && status != STOKER_ERROR_ARGUMENT; /* then nothing was written */
    return status;
}

static int fail_sample(struct stoker_error *error, const char *what, const char *advice,
                       const char *key)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, what, advice, "key '%.200s'", key);
}

/* ".jpg" and "" would be fine for WebDataset, and are mistakes. */
static bool is_extension(const char *text)
{
    return text && text[0] && text[0] != '.' && strlen(text) <= EXTENSION_BYTES_MAX &&
           strcmp(text, "__key__") != 0 && !strchr(text, '/');
}

/* The key's own rules are those of WebDataset: a sample is read back under the same key. */
static int check_sample(struct stoker_shard_writer *writer, const char *key,
                        const struct stoker_shard_member *members, size_t member_count,
                        struct stoker_error *error)
{
    if (member_count == 0 || member_count > STK_PACK_PIECES_MAX || !key || !key[0]) {
        return fail_sample(error, "a sample needs a key and members", "add 1 to 4,096 members",
                           key ? key : "");
    }
    for (size_t i = 0; i < member_count; i++) {
        struct stk_view name, key_back, extension;
        int status;

        if (!is_extension(members[i].extension)) {
            return fail_sample(error, "not a valid extension",
                               "use 1 to 255 bytes without '/' and without a leading '.'", key);
        }
        status = make_name(writer, key, members[i].extension, &name, error);
        if (status < 0) {
            return status;
        }
        if (strlen(key) > STK_STAGING_KEY_BYTES_MAX || stk_wds_name_error(name) ||
            !stk_wds_name_split(name, &key_back, &extension) || key_back.bytes != strlen(key)) {
            return fail_sample(error, "not a valid WebDataset key",
                               "no dot after the last '/', no '..', no __name__ at the beginning",
                               key);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcasecmp(members[i].extension, members[j].extension) == 0) {
                return fail_sample(error, "an extension occurs twice in a sample", "rename one",
                                   key);
            }
        }
    }
    return 0;
}

static int make_name(struct stoker_shard_writer *writer, const char *key, const char *extension,
                     struct stk_view *name_out, struct stoker_error *error)
{
    size_t key_bytes = strlen(key), extension_bytes = strlen(extension);
    size_t bytes = key_bytes + 1 + extension_bytes;

    if (bytes > STK_TAR_NAME_MAX) {
        return fail_sample(error, "the key is too long", "use at most 4,096 bytes", "");
    }
    if (bytes > writer->name_capacity) {
        char *grown = stk_realloc(writer->name, writer->name_capacity, bytes, 1);

        if (!grown) {
            return stk_fail_memory(error, "shard writer");
        }
        writer->name = grown;
        writer->name_capacity = bytes;
    }
    memcpy(writer->name, key, key_bytes);
    writer->name[key_bytes] = '.';
    for (size_t i = 0; i < extension_bytes; i++) {
        char letter = extension[i];
        writer->name[key_bytes + 1 + i] =
            (char)(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
    }
    *name_out = (struct stk_view){(const uint8_t *)writer->name, bytes};
    return 0;
}

/* The key is new, and the shard has room for the sample: a new one is begun if need be. */
static int reserve_buffer(struct stoker_shard_writer *writer, const char *key, uint64_t bytes,
                          struct stoker_error *error)
{
    char name[STK_SHARD_NAME_MAX];
    int status =
        stk_key_set_add(&writer->keys, (struct stk_view){(const uint8_t *)key, strlen(key)});

    if (status <= 0) {
        return status < 0 ? stk_fail_memory(error, "shard writer")
                          : fail_sample(error, "the key was already added",
                                        "use a different key for each sample", key);
    }
    status = 0;
    if (writer->out && stk_shard_file_samples(writer->out) > 0 &&
        stk_shard_file_bytes(writer->out) + bytes + STK_TAR_END_BYTES > writer->shard_bytes) {
        status = finish_shard(writer, error);
    }
    if (status < 0 || writer->out) {
        return status;
    }
    if (writer->shard_count >= stk_shard_pattern_max(writer->pattern)) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the pattern cannot name that many shards",
                        "use more digits, or larger shards", "'%.200s'", writer->pattern);
    }
    stk_shard_pattern_name(writer->pattern, writer->shard_count, name, sizeof name);
    return stk_shard_file_open(&writer->out, writer->staging.files, writer->staging.directory, name,
                               writer->staging.plan, error);
}

static int write_sample(struct stoker_shard_writer *writer, const char *key,
                        const struct stoker_shard_member *members, size_t member_count,
                        struct stoker_error *error)
{
    struct stk_view name;
    uint64_t bytes = 0;
    int status = 0;

    for (size_t i = 0; status == 0 && i < member_count; i++) {
        status = make_name(writer, key, members[i].extension, &name, error);
        bytes += status == 0 ? stk_tar_member_bytes(name, members[i].bytes) : 0;
    }
    status = status < 0 ? status : reserve_buffer(writer, key, bytes, error);
    if (status < 0) {
        return status;
    }
    stk_shard_file_begin_sample(writer->out);
    status = 0;
    for (size_t i = 0; status == 0 && i < member_count; i++) {
        status = make_name(writer, key, members[i].extension, &name, error);
        status = status < 0
                     ? status
                     : stk_shard_file_begin_member(writer->out, name, members[i].bytes, error);
        status = status < 0
                     ? status
                     : stk_shard_file_write(writer->out, members[i].data, members[i].bytes, error);
    }
    return status;
}

/* The names in the folder are synced too: the samples counted by position survive a power cut. */
static int finish_shard(struct stoker_shard_writer *writer, struct stoker_error *error)
{
    uint64_t samples = stk_shard_file_samples(writer->out);
    int status = stk_shard_file_finish(writer->out, error);

    if (status == 0) {
        status = stk_io_sync_directory(writer->staging.files, writer->staging.directory, error);
    }
    if (status == 0) {
        stk_shard_file_close(writer->out);
        writer->out = NULL;
        writer->shard_count++;
        writer->position += samples;
    }
    return status;
}

int stoker_shard_writer_commit(struct stoker_shard_writer *writer, struct stoker_error *error)
{
    struct stk_staging_content content = {.pattern = writer->pattern,
                                          .classes = (const char *const *)writer->classes,
                                          .class_count = writer->class_count};
    int status = check_open(writer, error);

    if (status == 0 && !writer->out && writer->shard_count == 0) {
        return stk_fail(error, STOKER_ERROR_EMPTY, "there are no samples to commit",
                        "add one, or close without commit", "shard writer");
    }
    if (status == 0 && writer->out) {
        status = finish_shard(writer, error);
        writer->failed = status < 0;
    }
    content.shard_count = writer->shard_count;
    status = status < 0 ? status : stk_staging_commit(&writer->staging, &content, error);
    writer->committed = status == 0;
    return status;
}
