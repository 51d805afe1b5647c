// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of files/, which needs target tessera::files: JSON, safetensors, and files that appear whole or not at all.
#include <tessera/files/atomic_file.hpp>
#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/block_reader.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/safetensors_header.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/files/tensor_folder.hpp>
