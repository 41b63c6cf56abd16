/* format/manifest/metadata_csv.h: metadata.csv of Hugging Face's imagefolder, as lines of JSON.
 *
 *   file_name,caption,score          {"file_name": "1.jpg", "caption": "a, b", "score": 0.5}
 *   1.jpg,"a, b",0.5          ->
 *
 * RFC 4180 with a first line of names. A cell that is a JSON number stays one, an empty cell is
 * null, others are text. Untrusted input: UTF-8, as many cells in each record as in the first line.
 * Owner: the caller. Threads: any. Memory: the result.
 * Bound: STK_METADATA_JSONL_BYTES_MAX of the result. */
#ifndef FORMAT_MANIFEST_METADATA_CSV_H
#define FORMAT_MANIFEST_METADATA_CSV_H

#include "base/base.h"

#define STK_METADATA_CSV_NAME "metadata.csv"

/* Sets *text_out, which the caller frees, and *bytes_out. Returns 0, -ENOMEM, STOKER_ERROR_LIMIT,
 * or STOKER_ERROR_FORMAT with the line of the record that is wrong. */
int stk_metadata_csv_convert(struct stk_view csv, uint8_t **text_out, size_t *bytes_out,
                             struct stoker_error *error);

#endif
