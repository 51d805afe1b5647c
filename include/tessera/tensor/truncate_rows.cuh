// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// `truncate_rows` on a device is `rows_from` there.
#include <tessera/tensor/rows_from.cuh>
#include <tessera/tensor/truncate_rows.hpp>
