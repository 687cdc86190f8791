/*
 * What else ONNX Runtime's ROCm provider is linked with: hipBLAS with rocBLAS, hipFFT and ROCm SMI. A handle of hipBLAS
 * can be made, which the provider does at its start; every other call fails, with its name on stderr.
 */
#include <stdio.h>
#include <stdlib.h>

#define REFUSED(name)                                                                                                  \
    int name(void) {                                                                                                   \
        fputs("not here: " #name "\n", stderr);                                                                        \
        return 1;                                                                                                      \
    }

int hipblasCreate(void **handle) {
    *handle = malloc(1);
    return *handle ? 0 : 2;
}
int hipblasDestroy(void *handle) {
    free(handle);
    return 0;
}
int hipblasSetStream(void *handle, void *stream) {
    (void)handle, (void)stream;
    return 0;
}
REFUSED(hipblasDcopy)
REFUSED(hipblasDgeam)
REFUSED(hipblasGemmEx)
REFUSED(hipblasGemmStridedBatchedEx)
REFUSED(hipblasScopy)
REFUSED(hipblasSgeam)
REFUSED(rocblas_dgemm)
REFUSED(rocblas_dgemm_batched)
REFUSED(rocblas_dgemm_strided_batched)
REFUSED(rocblas_gemm_batched_ex)
REFUSED(rocblas_gemm_ex)
REFUSED(rocblas_gemm_strided_batched_ex)
REFUSED(rocblas_get_stream)
REFUSED(rocblas_get_version_string)
REFUSED(rocblas_set_stream)
REFUSED(hipfftCreate)
REFUSED(hipfftSetStream)
REFUSED(hipfftXtExec)
REFUSED(hipfftXtMakePlanMany)
int rsmi_init(void) { return 0; }
int rsmi_shut_down(void) { return 0; }
REFUSED(rsmi_dev_memory_total_get)
REFUSED(rsmi_dev_memory_usage_get)
