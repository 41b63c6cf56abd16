/* The entropy decoder with shifts by a register (BMI2), which do not touch the flags. */
#include "decode/jpeg/jpeg_entropy.h"

#define ENTROPY stk_jpeg_entropy_avx2
#include "decode/jpeg/jpeg_entropy_inner.h"
