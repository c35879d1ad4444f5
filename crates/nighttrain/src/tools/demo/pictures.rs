//! The demonstration site's pictures, drawn by the program: two as SVG, one as a large bitmap.

use std::fmt::Write;

use super::pages::STOPS;

/// Draws a train of six cars with lit windows.
pub(super) fn train() -> String {
    const CARS: u32 = 6;
    let mut cars = String::new();
    for car in 0..CARS {
        let x = 16 + car * 102;
        _ = write!(cars, "<rect x=\"{x}\" y=\"28\" width=\"98\" height=\"44\" rx=\"6\" fill=\"#2f3b5c\"/>");
        for window in 0..5 {
            // Some windows are dark: their passengers sleep.
            let colour = if (car * 5 + window) % 4 == 2 { "#181d2a" } else { "#ffc857" };
            let x = x + 8 + window * 17;
            _ = write!(
                cars,
                "<rect x=\"{x}\" y=\"38\" width=\"12\" height=\"14\" rx=\"2\" fill=\"{colour}\"/>"
            );
        }
        for wheel in [x + 18, x + 80] {
            _ = write!(cars, "<circle cx=\"{wheel}\" cy=\"74\" r=\"6\" fill=\"#a3abc2\"/>");
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 96\" role=\"img\"><title>A night train</title>\
         <rect width=\"640\" height=\"96\" fill=\"#10131c\"/>{cars}\
         <path d=\"M0 82H640\" stroke=\"#a3abc2\" stroke-width=\"2\"/></svg>\n"
    )
}

/// Draws the railway line with its stops.
pub(super) fn map() -> String {
    let mut line = String::new();
    let mut stops = String::new();
    for (i, (name, arrival, departure, (x, y))) in STOPS.iter().enumerate() {
        _ = write!(line, "{}{x} {y}", if i == 0 { "M" } else { "L" });
        let time = if departure.is_empty() { arrival } else { departure };
        _ = write!(stops, "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"#ffc857\"/>");
        // Each label is on the side of the line that has room.
        let (label_y, anchor) = match i {
            0 => (y - 14, "end"),
            2 => (y - 14, "middle"),
            3 | 4 => (y + 22, "start"),
            7 => (y - 14, "start"),
            _ => (y + 24, "middle"),
        };
        _ = write!(
            stops,
            "<text x=\"{x}\" y=\"{label_y}\" text-anchor=\"{anchor}\">{} {time}</text>",
            name.split(' ').next().unwrap_or(name)
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" role=\"img\"><title>The line</title>\
         <rect width=\"640\" height=\"360\" fill=\"#10131c\"/>\
         <path d=\"{line}\" fill=\"none\" stroke=\"#6ea8fe\" stroke-width=\"3\"/>\
         <g fill=\"#e8eaf2\" font-family=\"system-ui, sans-serif\" font-size=\"13\">{stops}</g></svg>\n"
    )
}

/// Draws a night sky as an uncompressed bitmap (BITMAPINFOHEADER, 24 bits per pixel, rows from the bottom
/// up). Its 389 KB make it the site's one large file.
pub(super) fn night() -> Vec<u8> {
    const WIDTH: u32 = 480;
    const HEIGHT: u32 = 270;
    const HEADERS: u32 = 54;
    // A row is padded to a multiple of four bytes; this width needs none.
    const ROW: u32 = WIDTH * 3;
    const _: () = assert!(ROW.is_multiple_of(4));

    let mut file = Vec::with_capacity((HEADERS + ROW * HEIGHT) as usize);
    file.extend(b"BM");
    for field in [HEADERS + ROW * HEIGHT, 0, HEADERS, 40, WIDTH, HEIGHT] {
        file.extend(field.to_le_bytes());
    }
    // Planes (one) and bits per pixel (24).
    file.extend([1, 0, 24, 0]);
    // No compression, the size of the pixel data, 2835 pixels per metre both ways, no palette.
    for field in [0, ROW * HEIGHT, 2835, 2835, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    // A local generator (Marsaglia's xorshift) makes the sky identical every time.
    let mut state = 0x1187_u32;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            // Two ranges of hills, one behind the other.
            let hill = |width: u32, height: u32| (x % (2 * width)).abs_diff(width) * height / width;
            let horizon = 24 + hill(97, 22).max(hill(61, 16));
            let moon = x.abs_diff(396).pow(2) + y.abs_diff(210).pow(2) < 18 * 18;
            let star = random() % 701 == 0;
            #[allow(clippy::cast_possible_truncation, reason = "both are below 256: y is below 270")]
            let (glow, bright) = ((60 - y.min(180) / 3) as u8, (120 + random() % 136) as u8);
            // Blue, green, red.
            file.extend(match () {
                () if y < horizon => [0x14, 0x0d, 0x0a],
                () if moon => [0xc8, 0xe6, 0xf4],
                () if star => [bright, bright, bright],
                () => [0x1c + glow, 0x13 + glow / 2, 0x10 + glow / 3],
            });
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_says_its_own_size() {
        let file = night();
        let field = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
        assert_eq!(&file[..2], b"BM");
        assert_eq!(field(2), file.len());
        assert_eq!(field(10) + field(18) * field(22) * 3, file.len());
    }

    #[test]
    fn drawings_are_balanced() {
        for drawing in [train(), map()] {
            assert_eq!(drawing.matches('<').count(), drawing.matches('>').count());
            assert_eq!(drawing.matches('"').count() % 2, 0);
            assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
        }
    }
}
