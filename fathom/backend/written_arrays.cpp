#include "fathom/backend/written_arrays.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "fathom/backend/element.h"

namespace fathom {
namespace {

using Arrays = std::vector<WrittenArray>;

/// Collects what is there: empty views are not written.
class Collector {
 public:
  Collector& add(const AnyViewMut& view) { return view.empty() ? *this : add(Matrix(view), {view}); }
  Collector& add(const Q8Rows& q8) {
    return q8.wanted() ? add(Matrix(q8.codes, q8.scales, 1), {q8.codes, q8.scales}) : *this;
  }

  Collector& add_encoded(const View<uint8_t, 2>& rows, RowFormat format, int heads) {
    WrittenArray array;
    for (int64_t r = 0; r < rows.shape[0]; ++r) array.rows.push_back(rows.row(r));
    array.numbers = [rows, format, heads] {
      const int64_t bytes = rows.shape[1] / heads, channels = bytes * 32 / row_bytes(format, 32);
      std::vector<float> values(static_cast<size_t>(channels));
      std::vector<double> out;
      for (int64_t r = 0; r < rows.shape[0]; ++r) {
        for (int h = 0; h < heads; ++h) {
          decode_row(format, rows.row(r).data() + h * bytes, values);
          out.insert(out.end(), values.begin(), values.end());
        }
      }
      return out;
    };
    return keep(std::move(array));
  }

  /// Numbers if they are floats, else choices.
  template <class T, int Rank>
  Collector& add(const View<T, Rank>& view) {
    if (view.empty()) return *this;
    View<T, 2> rows;
    if constexpr (Rank == 2) {
      rows = view;
    } else {
      rows = View<T, 2>(view.data, {view.shape[0], 1}, {view.stride[0], 1});
    }
    WrittenArray array;
    for (int64_t r = 0; r < rows.shape[0]; ++r) {
      array.rows.emplace_back(reinterpret_cast<uint8_t*>(rows.row(r).data()), rows.row(r).size_bytes());
    }
    array.choices = !std::is_floating_point_v<T>;
    array.numbers = [rows] {
      std::vector<double> out;
      for (int64_t r = 0; r < rows.shape[0]; ++r) {
        for (const T value : rows.row(r)) out.push_back(double(value));
      }
      return out;
    };
    return keep(std::move(array));
  }

  Arrays take() { return std::move(arrays_); }

 private:
  Collector& add(const Matrix& matrix, std::initializer_list<AnyViewMut> memory) {
    WrittenArray array;
    for (const AnyViewMut& view : memory) {
      const auto bytes = size_t(view.cols * bits_of(view.dtype) / 8);
      for (int64_t r = 0; r < view.rows; ++r) array.rows.emplace_back(view.row(r), bytes);
    }
    array.numbers = [matrix] {
      std::vector<float> row(size_t(matrix.cols()));
      std::vector<double> out;
      for (int64_t r = 0; r < matrix.rows(); ++r) {
        decode_matrix_row(matrix, r, 0, row);
        out.insert(out.end(), row.begin(), row.end());
      }
      return out;
    };
    return keep(std::move(array));
  }
  Collector& keep(WrittenArray array) {
    arrays_.push_back(std::move(array));
    return *this;
  }
  Arrays arrays_;
};

double error_of_numbers(const std::vector<double>& got, const std::vector<double>& want) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) largest = std::max(largest, std::abs(want[i]));
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(want[i])) return 1;
    difference = std::max(difference, std::abs(got[i] - want[i]));
  }
  return difference == 0 ? 0 : std::min(1.0, difference / largest);
}

double share_that_differs(const std::vector<double>& got, const std::vector<double>& want) {
  size_t differ = 0;
  for (size_t i = 0; i < want.size(); ++i) differ += got[i] != want[i];
  return want.empty() ? 0 : double(differ) / double(want.size());
}

}  // namespace

Arrays written_by(const Embed& op) { return Collector().add(op.out).take(); }
Arrays written_by(const AddRows& op) { return Collector().add(op.out).take(); }
Arrays written_by(const QuantizeRows& op) { return Collector().add(Q8Rows{op.codes, op.scales}).take(); }
Arrays written_by(const Linear& op) { return Collector().add(op.out).take(); }
Arrays written_by(const GroupedLinear& op) { return Collector().add(op.out).take(); }
Arrays written_by(const RmsNorm& op) { return Collector().add(op.out).add(op.q8).take(); }
Arrays written_by(const Rope& op) { return Collector().add(op.x).take(); }
Arrays written_by(const EncodeRows& op) { return Collector().add_encoded(op.out, op.format, op.heads).take(); }
Arrays written_by(const Compress& op) { return Collector().add(op.out).take(); }
Arrays written_by(const SelectRows& op) {
  Collector all;
  all.add(op.entries).add(op.count).add(op.scores);
  if (op.block_size > 0 && op.candidate_source) all.add(op.blocks).add(op.block_count);
  return all.take();
}
Arrays written_by(const LatentAttention& op) { return Collector().add(op.out).take(); }
Arrays written_by(const Gate& op) { return Collector().add(op.experts).add(op.weights).take(); }
Arrays written_by(const GroupByExpert& op) {
  return Collector().add(op.begin).add(op.row).add(op.weight).add(op.place).take();
}
Arrays written_by(const SwiGlu& op) { return Collector().add(op.out).add(op.q8).take(); }
Arrays written_by(const Combine& op) { return Collector().add(op.out).take(); }
Arrays written_by(const NgramHash& op) { return Collector().add(op.out).take(); }
Arrays written_by(const EngramGather& op) { return Collector().add(Q8Rows{op.codes, op.scales}).take(); }
Arrays written_by(const EngramMix& op) { return Collector().add(op.streams).take(); }
Arrays written_by(const StreamMixes& op) { return Collector().add(op.pre).add(op.post).add(op.comb).take(); }
Arrays written_by(const StreamCollapse& op) { return Collector().add(op.out).add(op.q8).take(); }
Arrays written_by(const StreamSpread& op) {
  return Collector().add(op.streams).add(op.next.out).add(op.next.q8).take();
}
Arrays written_by(const StreamMean& op) { return Collector().add(op.out).take(); }
Arrays written_by(const Sample& op) { return Collector().add(op.ids).add(op.laws).take(); }

double error_of(std::span<const WrittenArray> arrays, const Numbers& got, const Numbers& want) {
  double worst = 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    worst =
        std::max(worst, arrays[i].choices ? share_that_differs(got[i], want[i]) : error_of_numbers(got[i], want[i]));
  }
  return worst;
}

double error_of(std::span<const WrittenArray> arrays, const std::function<void()>& call,
                const std::function<void()>& definition) {
  std::vector<uint8_t> before;
  for (const WrittenArray& array : arrays) {
    for (const auto row : array.rows) before.insert(before.end(), row.begin(), row.end());
  }
  const auto written = [&](const std::function<void()>& run) {
    run();
    Numbers out;
    for (const WrittenArray& array : arrays) out.push_back(array.numbers());
    const uint8_t* from = before.data();
    for (const WrittenArray& array : arrays) {
      for (const auto row : array.rows) {
        std::memcpy(row.data(), from, row.size());
        from += row.size();
      }
    }
    return out;
  };
  const Numbers got = written(call), want = written(definition);
  return error_of(arrays, got, want);
}

}  // namespace fathom
