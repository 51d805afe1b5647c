// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/config.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/types.h>

#include <tessera/core/config.hpp>
#include <tessera/data/parquet_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Where a data page of a column chunk begins, and what stands in front of it.
struct known_page {
  std::int64_t offset = 0;  // in the file
  std::int64_t rows = 0;    // that begin in pages before
  std::int64_t slots = 0;   // values, nulls and empty lists of pages before
};

// The bytes of a column chunk, read as they are asked for: [first, skip), then those from `resume` on.
class chunk_stream final : public arrow::io::InputStream {
 public:
  struct extent {
    std::int64_t first = 0, skip = 0, resume = 0, end = 0;
  };
  /// `ahead`: bytes that are read at once, where fewer are asked for.
  chunk_stream(arrow::io::RandomAccessFile& file, std::string const& path, arrow::MemoryPool* pool, extent bytes, std::int64_t ahead)
      : file_(file), path_(path), pool_(pool), bytes_(bytes), ahead_(ahead), position_(bytes.first) {
    skip_to_resume();
  }

  /// Where the last header began that was looked for.
  std::int64_t header() const noexcept { return header_; }
  /// What reading failed by, of which Arrow knows only that it did.
  std::exception_ptr failure() const noexcept { return failure_; }

  arrow::Result<std::string_view> Peek(std::int64_t bytes) override {
    header_ = position_;
    ARROW_ASSIGN_OR_RAISE(auto const found, fetch(bytes));
    return std::string_view(reinterpret_cast<char const*>(found->data()), static_cast<std::size_t>(found->size()));
  }
  arrow_bytes Read(std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto found, fetch(bytes));
    position_ += found->size();
    skip_to_resume();
    return found;
  }
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(auto const found, Read(bytes));
    std::copy_n(found->data(), found->size(), static_cast<std::uint8_t*>(out));
    return found->size();
  }
  bool supports_zero_copy() const override { return true; }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }

 private:
  void skip_to_resume() noexcept {
    if (position_ == bytes_.skip) position_ = bytes_.resume;
  }

  // The next bytes, fewer at the end.
  arrow_bytes fetch(std::int64_t bytes) {
    auto const end = position_ < bytes_.skip ? bytes_.skip : bytes_.end;
    bytes = std::clamp<std::int64_t>(bytes, 0, end - position_);
    bool const is_inside = held_ != nullptr && position_ >= held_first_ && position_ <= held_first_ + held_->size();
    auto const held = is_inside ? held_first_ + held_->size() - position_ : 0;
    if (held < bytes) {
      try {
        auto const wanted = std::min(std::max(bytes, ahead_), end - position_);
        ARROW_ASSIGN_OR_RAISE(auto joined, arrow::AllocateResizableBuffer(wanted, pool_));
        if (held > 0) std::memcpy(joined->mutable_data(), held_->data() + (position_ - held_first_), static_cast<std::size_t>(held));
        read_source(file_, path_, position_ + held, {reinterpret_cast<char*>(joined->mutable_data()) + held, wanted - held});
        held_ = std::move(joined);
        held_first_ = position_;
      } catch (...) {
        failure_ = std::current_exception();
        return arrow::Status::IOError("cannot read");
      }
    }
    if (bytes == 0) return std::make_shared<arrow::Buffer>(nullptr, 0);
    return arrow::SliceBuffer(held_, position_ - held_first_, bytes);
  }

  arrow::io::RandomAccessFile& file_;
  std::string const& path_;
  arrow::MemoryPool* pool_;
  extent bytes_;
  std::int64_t ahead_, position_, header_ = 0, held_first_ = 0;
  std::shared_ptr<arrow::Buffer> held_;
  std::exception_ptr failure_;
};

// How far a column chunk has been read, and the pages that were seen on the way.
struct page_progress {
  bool is_list = false;
  bool is_noted = false;          // pages are
  std::int64_t page_first = 0;    // slots in front of the page that was opened last,
  std::int64_t slots = 0;         // and with its own
  std::int64_t rows_begun = 0;    // in the levels that were decoded; of a list column
  std::int64_t first_wanted = 0;  // row, whose page is the first to be decompressed; of a column without lists
  std::vector<known_page> pages;

  void note(std::int64_t offset, std::int64_t page_slots) {
    if (is_noted) pages.push_back({offset, is_list ? rows_begun : slots, slots});
    page_first = slots;
    slots += page_slots;
  }
};

// The pages of a column chunk as Arrow has them. In a file of ours, a page that is encoded otherwise than the footer tells is refused: a page's
// checksum leaves its header out.
class page_walk final : public parquet::PageReader {
 public:
  page_walk(std::unique_ptr<parquet::PageReader> pages, std::shared_ptr<chunk_stream> stream, page_progress& progress,
            std::vector<parquet::Encoding::type> encodings)
      : pages_(std::move(pages)), stream_(std::move(stream)), progress_(progress), encodings_(std::move(encodings)) {
    if (progress_.first_wanted == 0 || progress_.is_list) return;
    pages_->set_data_page_filter([this](parquet::DataPageStats const& page) {
      bool const is_before = page.num_values > 0 && progress_.slots + page.num_values <= progress_.first_wanted;
      if (is_before) progress_.note(stream_->header(), page.num_values);
      return is_before;
    });
  }

  std::shared_ptr<parquet::Page> NextPage() override {
    auto page = pages_->NextPage();
    if (page == nullptr) return page;
    bool const first = page->type() == parquet::PageType::DATA_PAGE;
    if (!first && page->type() != parquet::PageType::DATA_PAGE_V2) return page;
    auto const& data = static_cast<parquet::DataPage const&>(*page);
    expect(data.encoding());
    if (first && !encodings_.empty()) {
      auto const& levels = static_cast<parquet::DataPageV1 const&>(data);
      expect(levels.definition_level_encoding());
      expect(levels.repetition_level_encoding());
    }
    progress_.note(stream_->header(), data.num_values());
    return page;
  }
  void set_max_page_header_size(std::uint32_t size) override { pages_->set_max_page_header_size(size); }

 private:
  void expect(parquet::Encoding::type encoding) const {
    if (!encodings_.empty() && std::find(encodings_.begin(), encodings_.end(), encoding) == encodings_.end())
      throw parquet::ParquetException("a page is encoded otherwise than the footer says");
  }

  std::unique_ptr<parquet::PageReader> pages_;
  std::shared_ptr<chunk_stream> stream_;
  page_progress& progress_;
  std::vector<parquet::Encoding::type> encodings_;  // empty: any
};

// A file whose column chunks are read.
struct open_parquet {
  std::string path;
  std::shared_ptr<arrow::io::RandomAccessFile> file;
  std::int64_t bytes = 0;
  parquet_footer footer;
};

// Where in a column chunk reading begins: at its first page, or at one that is known.
struct page_start {
  known_page page;
  std::int64_t first_data = -1;  // where the first data page begins; -1: not known, and reading begins there
};

// @throws what Arrow does.
inline std::unique_ptr<parquet::PageReader> open_pages(open_parquet const& from, int row_group, int leaf, page_start const& start,
                                                       bool verify, bool is_whole, arrow::MemoryPool* pool, page_progress& progress,
                                                       std::shared_ptr<chunk_stream>& stream) {
  auto const fail = [](char const* what) { throw parquet::ParquetException(what); };
  auto const& metadata = *from.footer.metadata;
  auto const chunk = metadata.RowGroup(row_group)->ColumnChunk(leaf);
  auto const& descriptor = *metadata.schema()->Column(leaf);
  if (chunk->crypto_metadata() != nullptr) fail("an encrypted column");
  if (chunk->type() != descriptor.physical_type()) fail("another type than in the schema");
  auto first = chunk->data_page_offset();
  if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0) first = std::min(first, chunk->dictionary_page_offset());
  auto const size = chunk->total_compressed_size();
  if (first < 0 || size < 0 || first > from.bytes || size > from.bytes - first) fail("a column chunk that is not in the file");
  // Old writers leave the header of the dictionary out of the size.
  constexpr std::int64_t most_padding = 100, ahead = std::int64_t{1} << 18;
  auto const& writer = metadata.writer_version();
  auto const padding = writer.VersionLt(parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION()) ? most_padding : 0;
  auto const end = std::min(from.bytes, first + size + padding);
  bool const is_inside = start.first_data >= 0 && start.page.offset > start.first_data;
  chunk_stream::extent const bytes{first, is_inside ? start.first_data : end, is_inside ? start.page.offset : end, end};
  stream = std::make_shared<chunk_stream>(*from.file, from.path, pool, bytes, is_whole ? end - first : ahead);

  parquet::ReaderProperties properties(pool);
  properties.set_page_checksum_verification(verify);
  auto const slots = chunk->num_values() - start.page.slots;
  bool const is_compressed = writer.VersionLt(parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION());
#if ARROW_VERSION_MAJOR >= 25
  auto pages = parquet::PageReader::Open(stream, slots, chunk->compression(), properties, descriptor, is_compressed);
#else
  auto pages = parquet::PageReader::Open(stream, slots, chunk->compression(), properties, is_compressed);
#endif
  progress.slots = start.page.slots;
  progress.rows_begun = start.page.rows;
  std::vector<parquet::Encoding::type> encodings;
  if (from.footer.is_ours) {
    encodings = chunk->encodings();
    encodings.push_back(parquet::Encoding::RLE);  // of levels
  }
  return std::make_unique<page_walk>(std::move(pages), stream, progress, std::move(encodings));
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
