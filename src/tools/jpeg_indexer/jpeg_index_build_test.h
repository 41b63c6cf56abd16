/* tools/jpeg_indexer/jpeg_index_build_test.h: shared by the tests of JPEG indexes: JPEGs by
 * libjpeg, a run of the indexer to its end. Owner: the test. Threads: one. Memory: the test's.
 * Bound: MARKER_WIDTH_MAX. */
#ifndef TOOLS_JPEG_INDEXER_JPEG_INDEX_BUILD_TEST_H
#define TOOLS_JPEG_INDEXER_JPEG_INDEX_BUILD_TEST_H

#include "base/random.h"
#include "dataset/dataset_test.h"
#include "decode/jpeg_index/jpeg_index.h"

#include <jpeglib.h>

#define MARKER_WIDTH_MAX 1000u

struct marker_picture {
    uint32_t number; /* of its noise */
    uint32_t width, height, noise;
    int quality, channels; /* 1: grey; 3 */
    unsigned restart_interval;
    bool progressive;
    bool flat; /* one colour, by codes made for it: as few bits as can be */
};

static inline size_t marker_encode(const struct marker_picture *picture, uint8_t *file,
                                   size_t capacity)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *to = file;
    unsigned long bytes = capacity;
    uint8_t row[3 * MARKER_WIDTH_MAX];

    STK_ASSERT(picture->width <= MARKER_WIDTH_MAX);
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &to, &bytes);
    cinfo.image_width = picture->width;
    cinfo.image_height = picture->height;
    cinfo.input_components = picture->channels;
    cinfo.in_color_space = picture->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, picture->quality, TRUE);
    cinfo.restart_interval = picture->restart_interval;
    cinfo.optimize_coding = picture->flat;
    if (picture->progressive) {
        jpeg_simple_progression(&cinfo);
    }
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW rows = row;

        for (uint32_t i = 0; i < (uint32_t)picture->channels * cinfo.image_width; i++) {
            uint64_t noise =
                stk_random_key(picture->number, (uint64_t)cinfo.next_scanline << 32 | i);

            row[i] = picture->flat
                         ? 128
                         : (uint8_t)(i + cinfo.next_scanline * 2 + noise % picture->noise);
        }
        jpeg_write_scanlines(&cinfo, &rows, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    STK_ASSERT(to == file);
    return bytes;
}

/* To its end, or to the failure that is returned. */
static inline int marker_run(struct stoker_engine *engine, const char *url, uint32_t mcus,
                             bool check, struct stoker_jpeg_indexer_progress *progress)
{
    struct stoker_jpeg_indexer_options options = {
        .struct_size = sizeof options, .mcus = mcus, .check = check};
    struct stoker_dataset *dataset = NULL;
    struct stoker_jpeg_indexer *marker = NULL;
    struct stoker_error error = {0};
    int status = t_open(engine, url, STOKER_INDEX_AUTO, &dataset, &error);

    status = status < 0 ? status : stoker_jpeg_indexer_open(&marker, dataset, &options, &error);
    while (status == 0) {
        progress->struct_size = sizeof *progress;
        status = stoker_jpeg_indexer_next(marker, progress, &error);
        if (status <= 0) {
            break;
        }
        status = 0;
    }
    progress->path = NULL; /* valid until close */
    stoker_jpeg_indexer_close(marker);
    stoker_dataset_close(dataset);
    return status;
}

#endif
