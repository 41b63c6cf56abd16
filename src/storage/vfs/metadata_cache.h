/* storage/vfs/metadata_cache.h: the metadata of objects and folders that listings and HEAD requests
 * returned recently, by URL: so a file that was just listed is opened without a request.
 *
 *   an object: size, ETag, time     valid for STK_VFS_METADATA_TTL_S
 *   a folder: that it exists        valid for STK_VFS_FOLDER_TTL_MS
 *   the listing of the last folder  once, within STK_VFS_FOLDER_TTL_MS
 *
 * Owner: struct stk_vfs. Threads: any. Memory: a table that grows up to its bound, and one listing.
 * It holds hashes of URLs, no URLs. Bound: STK_VFS_METADATA_MAX entries; a new entry replaces an
 * old one. */
#ifndef STORAGE_VFS_METADATA_CACHE_H
#define STORAGE_VFS_METADATA_CACHE_H

#include "io/io.h"
#include "storage/object/store.h"

#define STK_VFS_METADATA_MAX (1u << 17)
#define STK_VFS_METADATA_TTL_S 60u
#define STK_VFS_FOLDER_TTL_MS 2000u

struct stk_metadata_cache;

/* Returns 0 or -ENOMEM. */
int stk_metadata_cache_open(struct stk_metadata_cache **cache_out);
void stk_metadata_cache_close(struct stk_metadata_cache *cache); /* NULL is allowed */
void stk_metadata_cache_add(struct stk_metadata_cache *cache, const char *url,
                            const struct stk_object_info *info);
bool stk_metadata_cache_find(struct stk_metadata_cache *cache, const char *url,
                             struct stk_object_info *info_out);
/* listing: all entries of the folder, for the next stk_metadata_cache_take_listing. Takes it with
 * its memory; NULL: none. */
void stk_metadata_cache_add_folder(struct stk_metadata_cache *cache, const char *url,
                                   struct stk_listing *listing);
bool stk_metadata_cache_has_folder(struct stk_metadata_cache *cache, const char *url);
/* Gives the listing of the last folder to the caller if it is this one. */
bool stk_metadata_cache_take_listing(struct stk_metadata_cache *cache, const char *url,
                                     struct stk_listing *listing_out);
/* Removes all objects and folders. */
void stk_metadata_cache_clear(struct stk_metadata_cache *cache);
/* Removes the object, the folders above it, and the listing. */
void stk_metadata_cache_remove(struct stk_metadata_cache *cache, const char *url);

#endif
