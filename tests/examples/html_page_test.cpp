// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>

#include "../../examples/support/html_page.hpp"

using examples::html_page;
using tessera::errc;

namespace {

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}
bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("html_page: one file that fetches nothing and runs nothing") {
  html_page page("a run");
  page.heading("curves");
  page.charts({{"loss", "step", "nats", {{"train", {0, 1, 2}, {0.7, 0.6, 0.5}}}}});
  auto const text = page.text();
  CHECK(text.rfind("<!doctype html>", 0) == 0);
  CHECK_FALSE(has(text, "http"));
  CHECK_FALSE(has(text, "<script"));
  CHECK_FALSE(has(text, "url("));
  CHECK(count(text, "<svg") == 1);
  CHECK(count(text, "</svg>") == 1);
  CHECK(has(text, "<title>a run</title>"));
  CHECK(has(text, "<h2>curves</h2>"));
}

TEST_CASE("html_page: every text is escaped") {
  html_page page("<a & \"b\">");
  page.heading("<h>");
  page.paragraph("a < b");
  page.table({"<c>"}, {{"<d>"}});
  page.charts({{"<t>", "<x>", "<y>", {{"<s>", {0, 1}, {0, 1}, true}, {"u", {0}, {1}}}}});
  auto const text = page.text();
  for (char const* raw : {"<a &", "<h>", "a < b", "<c>", "<d>", "<t>", "<x>", "<y>", "<s>"}) {
    CAPTURE(raw);
    CHECK_FALSE(has(text, raw));
  }
  CHECK(has(text, "&lt;a &amp; &quot;b&quot;&gt;"));
  CHECK(has(text, "<td>&lt;d&gt;</td>"));
}

TEST_CASE("html_page: a line goes where its data are") {
  html_page page("p");
  page.charts({{"t", "x", "y", {{"s", {0, 5, 10}, {1, 3, 2}, true}}}});
  auto const text = page.text();
  // The plot lies in [64, 624] x [28, 270]; its axes end at the data's.
  CHECK(has(text, "d=\"M64.0 270.0L344.0 28.0L624.0 149.0\""));
  CHECK(count(text, "<circle") == 3);
  CHECK(has(text, "<title>s: 5, 3</title>"));
  CHECK_FALSE(has(text, "class=\"legend\""));  // one line needs none
}

TEST_CASE("html_page: gaps, ranges, one value, nothing") {
  auto const nan = std::numeric_limits<double>::quiet_NaN();
  html_page page("p");
  examples::line_chart ranged("t", "x", "y", {{"s", {0, 1, 2, 3}, {0.2, nan, 0.4, 0.6}}, {"u", {0, 3}, {0, 1}, false, true}});
  ranged.y_least = 0;
  ranged.y_most = 1;
  page.charts({ranged, {"one", "x", "y", {{"s", {4}, {7}, true}}}, {"none", "x", "y", {}}, {"gap", "x", "y", {{"s", {nan}, {nan}}}}});
  auto const text = page.text();
  CHECK(has(text, "d=\"M64.0 221.6M437.3 173.2L624.0 124.8\""));
  CHECK(has(text, "class=\"s1 dashed\""));
  CHECK(count(text, "class=\"legend\"") == 1);
  CHECK(has(text, "cx=\"344.0\" cy=\"149.0\""));  // a lone value stands in the middle
  CHECK(count(text, "<svg") == 4);
  CHECK_FALSE(has(text, "nan\""));
  CHECK_FALSE(has(text, "inf"));
}

TEST_CASE("axis_ticks are round numbers within the axis") {
  using examples::detail::axis_ticks;
  CHECK(axis_ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(axis_ticks(0, 1, 5).size() == 6);
  CHECK(axis_ticks(-3, 3, 6) == std::vector<double>{-3, -2, -1, 0, 1, 2, 3});
  for (double const scale : {1e-12, 1e-3, 7.0, 1e9}) {
    auto const ticks = axis_ticks(0.13 * scale, 0.97 * scale, 5);
    CAPTURE(scale);
    CHECK(ticks.size() >= 3);
    CHECK(ticks.size() <= 9);
    CHECK(ticks.front() >= 0.13 * scale * (1 - 1e-9));
    CHECK(ticks.back() <= 0.97 * scale * (1 + 1e-9));
  }
}

TEST_CASE("html_page: what does not fit is refused") {
  html_page page("p");
  auto const before = page.text();
  auto const code = [](auto&& call) {
    try {
      call();
    } catch (tessera::error const& e) {
      return e.code();
    }
    return errc::io_error;
  };
  CHECK(code([&] { page.table({"a", "b"}, {{"1", "2"}, {"3"}}); }) == errc::shape_mismatch);
  CHECK(code([&] { page.charts({{"t", "x", "y", {{"s", {1, 2}, {1}}}}}); }) == errc::shape_mismatch);
  CHECK(page.text() == before);
}

TEST_CASE("html_page: ranges too wide or too narrow for an axis have one all the same") {
  auto const drawn = [](std::vector<double> const& y) {
    html_page page("p");
    page.charts({{"t", "x", "y", {{"s", {0, 1}, y, true}}}});
    return page.text();
  };
  for (auto const& y : std::vector<std::vector<double>>{
           {0, 5e-324}, {-1e-320, 1e-320}, {1, std::nextafter(1.0, 2.0)}, {1e299, std::nextafter(1e299, 1e300)}, {-1e300, 1e300}}) {
    CAPTURE(y);
    auto const text = drawn(y);
    CHECK_FALSE(has(text, "nan"));
    CHECK_FALSE(has(text, "inf"));
    CHECK(count(text, "<circle") == 2);
    CHECK(count(text, "class=\"grid\"") < 30);
  }
  // Their distance is no number: not drawn.
  CHECK(count(drawn({-1e308, 1e308}), "<circle") == 0);
  CHECK_FALSE(has(drawn({-1e308, 1e308}), "nan"));
}

TEST_CASE("html_page: bars are as high as their parts") {
  html_page page("p");
  page.bars({{"<t>", "s", {"a", "b"}, {{"x", {1, 3}}, {"y", {1, 1}}}}});
  auto const text = page.text();
  // The plot lies in [20, 260]; the highest bar, 4, fills it.
  CHECK(count(text, "<rect") == 4);
  CHECK(has(text, "height=\"180.0\"><title>b, x: 3<"));
  CHECK(has(text, "y=\"20.0\""));
  CHECK(has(text, "height=\"60.0\"><title>a, y: 1<"));
  CHECK(has(text, "&lt;t&gt;"));
  CHECK(count(text, "class=\"k") == 2);
  html_page empty("p");
  empty.bars({{"t", "s", {}, {}}, {"t", "s", {"a"}, {{"x", {0}}}}});
  CHECK(count(empty.text(), "<svg") == 2);
}

TEST_CASE("html_page: bars that cannot be drawn are refused by name") {
  html_page page("p");
  auto const refusal = [&](examples::bar_chart const& chart) -> std::string {
    try {
      page.bars({chart});
    } catch (tessera::error const& e) {
      return e.what();
    }
    return {};
  };
  CHECK(refusal({"t", "s", {"a", "b"}, {{"x", {1}}}}) == "html_page: a part has one value a bar (part x, values 1, bars 2)");
  CHECK(refusal({"t", "s", {"a"}, {{"x", {-1}}}}) == "html_page: a bar's value (part x, bar a, value -1)");
  CHECK(refusal({"t", "s", {"a"}, {{"x", {std::nan("")}}}}).find("html_page: a bar's value (part x, bar a, value") == 0);
}
