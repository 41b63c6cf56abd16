/* Goal: a loader whose index file is truncated or overwritten while it runs fails with
 * STOKER_ERROR_CHANGED at every further batch, lists no sample as bad, and continues if the file is
 * only touched.
 * Method: real files in a temporary folder (loader_maps.c). */
#include "loader/pending/loader_maps.h"

#include "test/idle_blocks.h"
#include "test/t.h"
#include "test/tars.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLES 200

static char folder[64], tar_path[128], index_path[128];

static void make_tar(void)
{
    struct t_tar tar = {0};
    char name[32], text[32];
    FILE *file = fopen(tar_path, "wb");

    for (int i = 0; i < SAMPLES; i++) {
        snprintf(name, sizeof name, "%04d.cls", i);
        snprintf(text, sizeof text, "%d", i);
        t_tar_add(&tar, name, text, strlen(text));
    }
    t_tar_end(&tar);
    T_TRUE("tar", file && fwrite(tar.data, 1, tar.bytes, file) == tar.bytes);
    if (file) {
        fclose(file);
    }
    t_tar_free(&tar);
}

enum { NOTHING, TOUCHED, CUT, ZEROS, CHANGES };

static void change(int how)
{
    static const uint8_t zeros[1 << 16];
    struct timespec times[2] = {{1, 0}, {1, 0}};
    struct stat about;
    int fd = open(index_path, O_WRONLY);

    usleep(30000); /* file times have steps of a few milliseconds */
    T_EQ("index", fstat(fd, &about), 0);
    if (how == TOUCHED) {
        T_EQ("touch", futimens(fd, times), 0);
    } else if (how == CUT) {
        T_EQ("cut", ftruncate(fd, 100), 0);
    } else if (how == ZEROS) {
        T_EQ("zeros", write(fd, zeros, (size_t)about.st_size), about.st_size);
    }
    close(fd);
}

static void write_index(struct stoker_engine *engine)
{
    const char *paths[] = {folder};
    struct stoker_dataset_options data = {
        .struct_size = sizeof data, .urls = paths, .url_count = 1};
    struct stoker_indexer_options options = {.struct_size = sizeof options};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_indexer *indexer = NULL;
    int status = stoker_indexer_open(&indexer, engine, &data, &options, NULL);

    status = status < 0 ? status : 1;
    while (status == 1) {
        status = stoker_indexer_next(indexer, 1000, &progress, NULL);
    }
    T_EQ("index", status, 0);
    stoker_indexer_close(indexer);
}

static void test_change(int how)
{
    const char *paths[] = {folder};
    struct stoker_dataset_options data = {
        .struct_size = sizeof data, .urls = paths, .url_count = 1};
    struct stoker_field_options field = {.name = "cls", .kind = STOKER_FIELD_LABEL};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = &field,
                                            .field_count = 1,
                                            .batch_size = 10,
                                            .on_error = STOKER_ON_ERROR_SKIP,
                                            .batches_ahead = 1,
                                            .tail = STOKER_TAIL_KEEP};
    struct stoker_engine_options engine_options = {.struct_size = sizeof engine_options,
                                                   .threads = 2};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_loader *loader = NULL;
    struct stoker_error error = {0};
    uint32_t good = 0, changed = 0;
    int status = 1;

    unlink(index_path);
    T_EQ("engine", stoker_engine_open(&engine, &engine_options, NULL), 0);
    write_index(engine);
    T_EQ("data set", stoker_dataset_open(&dataset, engine, &data, &error), 0);
    T_EQ("loader", stoker_loader_open(&loader, dataset, &options, &error), 0);
    for (uint32_t i = 0; i < 60 && changed < 3; i++) {
        struct stoker_batch *batch = NULL;

        status = stoker_loader_next(loader, 20000, &batch, &error);
        T_TRUE("next", status == 0 || status == 1 || status == STOKER_ERROR_CHANGED);
        if (status == STOKER_ERROR_CHANGED) {
            T_ERROR("changed", &error);
            changed++;
        }
        good += status == 1;
        stoker_batch_close(batch);
        if (i == 2) {
            change(how);
        }
    }
    T_EQ("changed", changed, how == CUT || how == ZEROS ? 3 : 0);
    T_TRUE("good", how == CUT || how == ZEROS ? good < 10 : good > 50);
    T_EQ("none is listed", stoker_loader_quarantine_count(loader), 0);
    stoker_loader_close(loader);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/loader_maps_XXXXXX");
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(tar_path, sizeof tar_path, "%s/a.tar", folder);
    snprintf(index_path, sizeof index_path, "%s/stoker.index", folder);
    make_tar();
    for (int how = NOTHING; how < CHANGES; how++) {
        test_change(how);
    }
    unlink(tar_path);
    unlink(index_path);
    rmdir(folder);
    T_EQ("no leak", t_idle_blocks(), 0);
    return t_finish();
}
