#include "fathom/backend/cpu/isa.h"

#include <gmock/gmock.h>

#include <cstring>

#include "fathom/backend/backend.h"

namespace fathom::cpu {
namespace {

TEST(IsaTest, WithoutACapEverythingThatTheProcessorHasIsUsed) {
  const Processor best{Isa::amx, true};
  EXPECT_EQ(capped_processor(best, "").value(), best);
}

TEST(IsaTest, ACapTakesAwayWhatIsAboveIt) {
  const Processor best{Isa::amx, true};
  EXPECT_EQ(capped_processor(best, "portable").value(), (Processor{Isa::portable, false}));
  EXPECT_EQ(capped_processor(best, "avx2").value(), (Processor{Isa::avx2, false}));
  EXPECT_EQ(capped_processor(best, "avx512").value(), (Processor{Isa::avx512, true}));
  EXPECT_EQ(capped_processor(best, "amx").value(), best);
}

TEST(IsaTest, AskingForMoreThanTheProcessorHasIsUnsupportedAndNamesItsBest) {
  const auto capped = capped_processor({Isa::avx2, false}, "avx512");
  ASSERT_FALSE(capped.ok());
  EXPECT_EQ(capped.error().code, ErrorCode::unsupported);
  EXPECT_EQ(to_string(capped.error()),
            "this processor has no avx512 (FATHOM_CPU_ISA): its best is avx2; pass that or unset the variable");
}

TEST(IsaTest, AnUnknownNameIsAUsageErrorWithTheChoices) {
  for (const char* name : {"sse2", "AVX2", "avx-512", " avx2"}) {
    const auto capped = capped_processor({Isa::amx, true}, name);
    ASSERT_FALSE(capped.ok());
    EXPECT_EQ(capped.error().code, ErrorCode::usage);
    EXPECT_THAT(capped.error().remedy, testing::HasSubstr("portable, avx2, avx512 or amx"));
  }
}

TEST(IsaTest, TheDetailSaysThatAmxIsNotUsedYet) {
  EXPECT_EQ(describe({Isa::portable, false}), "portable code");
  EXPECT_THAT(describe({Isa::amx, true}), testing::HasSubstr("AMX is not used yet"));
}

TEST(IsaTest, EveryEntryOfTheTableIsFilledWhateverTheProcessor) {
  for (const Processor& processor : runnable_processors()) {
    const Operations ops = cpu_operations(processor);
    const Operations all = reference_operations();
    // Both are plain structs of pointers after the name: none of ours may be empty.
    const auto entries = [](const Operations& table) {
      std::vector<void*> pointers(sizeof(Operations) / sizeof(void*));
      std::memcpy(pointers.data(), &table, sizeof(Operations));
      return pointers;
    };
    EXPECT_THAT(entries(ops), testing::Not(testing::Contains(nullptr)));
    EXPECT_NE(ops.linear, all.linear);
    EXPECT_NE(ops.grouped_linear, all.grouped_linear);
  }
}

}  // namespace
}  // namespace fathom::cpu
