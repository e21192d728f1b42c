// Writes barcodes of each kind by ZXing, reads them back in four directions, and compares the text.

#include "BarcodeFormat.h"
#include "BitMatrix.h"
#include "ImageView.h"
#include "MultiFormatWriter.h"
#include "ReadBarcode.h"

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

struct Symbol {
  ZXing::BarcodeFormat Format;
  const char *Text;
  int Width, Height; // pixels
};

constexpr Symbol Symbols[] = {
    {ZXing::BarcodeFormat::QRCode, "https://example.org/?id=12345&name=smaller", 150, 150},
    {ZXing::BarcodeFormat::DataMatrix, "Data Matrix 0123456789", 120, 120},
    {ZXing::BarcodeFormat::Aztec, "Aztec: MIXED case, 0123", 130, 130},
    {ZXing::BarcodeFormat::PDF417, "PDF417 holds a few lines of text.", 300, 120},
    {ZXing::BarcodeFormat::Code128, "Code-128/42", 280, 60},
    {ZXing::BarcodeFormat::Code39, "CODE39", 280, 60},
    {ZXing::BarcodeFormat::Code93, "CODE93", 280, 60},
    {ZXing::BarcodeFormat::EAN13, "4006381333931", 240, 60},
    {ZXing::BarcodeFormat::ITF, "00123456789012", 280, 60},
};

bool isReadBack(const Symbol &Written, int Degrees) {
  const ZXing::BitMatrix Bits =
      ZXing::MultiFormatWriter(Written.Format)
          .setMargin(10)
          .encode(std::string(Written.Text), Written.Width, Written.Height);
  const auto Pixels = ZXing::ToMatrix<std::uint8_t>(Bits);
  const ZXing::ImageView Image(Pixels.data(), Pixels.width(), Pixels.height(),
                               ZXing::ImageFormat::Lum);
  for (const auto &Barcode : ZXing::ReadBarcodes(Image.rotated(Degrees)))
    if (Barcode.text() == Written.Text)
      return true;
  return false;
}

} // namespace

int main() {
  for (const Symbol &Written : Symbols)
    for (int Degrees = 0; Degrees < 360; Degrees += 90)
      if (!isReadBack(Written, Degrees)) {
        std::fprintf(stderr, "expected to read \"%s\" turned by %d degrees, found nothing\n",
                     Written.Text, Degrees);
        return 1;
      }
}
