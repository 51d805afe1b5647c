# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

# Public headers that only compile beside a dependency a consumer may not have, each with the target that brings it. They stand in no umbrella.
set(tessera_optional_headers
    tessera/nn/gemm_blas.hpp tessera::blas
    tessera/nn/gemm_dnnl.hpp tessera::dnnl)
