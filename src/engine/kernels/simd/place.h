#pragma once
// Where a block of 256 weights has the bits of a part.
namespace vitrine {
namespace {

/// Where the 32 weights of a part of a block (0 to 7) have some of their bits: in 32 bytes from `offset` on, `shift` places too
/// high, or too low if it is negative.
struct Place {
  int offset, shift;
};

}  // namespace
}  // namespace vitrine
