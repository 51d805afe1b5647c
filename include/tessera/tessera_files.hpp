// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What reads or writes JSON; needs target tessera::files.
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/preprocessing_file.hpp>
