/* The plain build of the entropy decoder: for every machine. */
#include "jpeg/entropy.h"

#define ENTROPY stk_jpeg_entropy_plain
#include "jpeg/entropy_inner.h"
