use super::super::layout::columns_behind;
use super::super::runs::{By, Sight};
use super::super::tiling::{Lines, Packed, REGISTERS, SHARED, SHARED_RESERVED};
use super::rows_are_filters::{blocks, gathering, lines, planes, reordered, transposed};
use super::rows_are_pixels::{im2col, packed, runs, windows};
use super::*;
use fuseplan_gpu::common_power;

fn work(pixels: usize, filters: usize, channels: usize, taps: usize) -> Work {
    let bytes = 2 * pixels * (filters + channels);
    Work {
        images: 1,
        planes: 1,
        lines: 1,
        columns: pixels,
        image_columns: pixels,
        pad: 0,
        stride: 1,
        is_aligned: true,
        groups: 1,
        groups_apart: true,
        groups_walked: false,
        filters,
        channels,
        taps: [1, 1, taps],
        channel_values: 1,
        epilogue: 0,
        orders_filters: filters.is_multiple_of(8),
        element: 2,
        tf32x3: false,
        vector: 8,
        unrolled_parts: 8,
        bytes,
        read: 2 * pixels * channels,
        residuals: 0,
        reads_elements: false,
        results_are_odd: false,
        images_follow: true,
        writes_rows: false,
        units: 132,
    }
}

fn best(work: &Work) -> Tiling {
    im2col(work).into_iter().min_by(|a, b| work.time(a).total_cmp(&work.time(b))).unwrap()
}

#[test]
fn every_problem_has_a_tile_within_a_block() {
    for filters in [16, 17, 24, 100, 256, 257, 5000] {
        for channels in [1, 8, 24, 72, 512, 4096usize] {
            for channel_values in [0, 1, 4, 16] {
                for groups in [1, 3] {
                    let all = im2col(&Work {
                        channel_values,
                        epilogue: 8 * channel_values,
                        groups,
                        channels: channels.next_multiple_of(if groups == 1 { 1 } else { 16 }),
                        ..work(1000, filters, channels, 9)
                    });
                    assert!(!all.is_empty(), "{filters} {channels} {channel_values} {groups}");
                    for tiling in all {
                        assert!(tiling.filters().is_multiple_of(8) && tiling.filters() <= FILTERS);
                        let (producer, consumer) = tiling.registers();
                        let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                        assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                        assert!(tiling.stages >= 3);
                    }
                }
            }
        }
    }
}

/// With 3xTF32 rows' factors and an interval's sums are in registers, and pixels or filters have two parts in memory.
#[test]
fn every_problem_has_a_tile_of_three_products() {
    for (filters, channels, taps) in [(5, 4, 9), (16, 16, 1), (64, 64, 9), (200, 72, 25), (5000, 2048, 1)] {
        for channel_values in [0, 16] {
            let of = |tf32x3| Work {
                element: 4,
                tf32x3,
                channel_values,
                epilogue: 8 * channel_values,
                ..work(5000, filters, channels, taps)
            };
            let (three, one) = (of(true), of(false));
            for all in [im2col(&three), gathering(&three)] {
                assert!(!all.is_empty(), "{three:?}");
                for tiling in all {
                    let (producer, consumer) = tiling.registers();
                    let consumers = tiling.pingpong * tiling.cooperative;
                    let registers = tiling.producers * producer + consumers * consumer;
                    assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                    assert!(tiling.atoms == 1 && consumer > 2 * tiling.accumulators() + 24, "{tiling:?}");
                    let plain = Tiling { tf32x3: false, ..tiling };
                    let (filter_steps, taps) = (three.filter_steps(&tiling), three.taps.iter().product());
                    let bytes = |tiling: &Tiling| tiling.shared(filter_steps, taps, channel_values);
                    assert!(bytes(&tiling) > bytes(&plain), "{tiling:?}");
                }
            }
            let time = |work: &Work| work.time(&best(work));
            assert!(time(&three) >= time(&one), "{three:?}");
        }
    }
}

#[test]
fn tiles_suit_their_problems() {
    // One wave of 25 times 5 tiles.
    let deep = best(&work(64 * 49, 512, 512, 9));
    assert_eq!((deep.pixels(), deep.filters()), (128, 104));
    // Memory bound: many consumers, and resident filters.
    let wide = best(&work(64 * 55 * 55, 256, 64, 1));
    assert!(wide.pingpong * wide.cooperative * wide.occupancy >= 3 && wide.resident, "{wide:?}");
    // Large: every operand is used often.
    let large = best(&work(16 * 128 * 128, 512, 512, 9));
    assert!(large.pixels() * large.filters() >= 128 * 128, "{large:?}");
    // A single image still gives work to many multiprocessors.
    let one = best(&work(49, 512, 512, 9));
    assert!(one.pixels() == 64 && one.filters() <= 64 && one.split > 1, "{one:?}");
}

#[test]
fn gathered_tiles_suit_their_problems() {
    let best = |work: &Work| {
        let time = |tiling: &Tiling| work.time(tiling);
        gathering(work).into_iter().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap()
    };
    // One wave either way: pixels are gathered for as many filters as can be.
    assert_eq!(best(&work(64 * 14 * 14, 256, 256, 9)).filters(), 256);
    // Half a wave, or all of it in narrower tiles.
    assert_eq!(best(&work(64 * 7 * 7, 512, 512, 9)).filters(), 128);
    assert_eq!(best(&work(64 * 55 * 55, 64, 64, 9)).filters(), 64);
    for filters in [32, 100, 5000] {
        for channel_values in [0, 16] {
            let all = gathering(&Work { channel_values, ..work(1000, filters, 64, 27) });
            assert!(!all.is_empty());
            for tiling in all {
                let (producer, consumer) = tiling.registers();
                let registers = tiling.producers * producer + tiling.pingpong * tiling.cooperative * consumer;
                assert!(registers <= REGISTERS && consumer <= 240, "{tiling:?}");
            }
        }
    }
}

#[test]
fn tiles_of_planes_and_lines_fit_a_block() {
    for (filters, channels, taps) in
        [(16, 24, 1), (64, 64, 1), (200, 17, 1), (64, 64, 3), (130, 128, 3), (48, 20, 5)]
    {
        for (rows, columns) in [(1, 8), (4, 14), (28, 28), (56, 56), (80, 80), (160, 160), (9, 256)] {
            for channel_values in [0, 16] {
                let work = Work {
                    images: 3,
                    lines: rows,
                    columns,
                    image_columns: columns,
                    pad: taps / 2,
                    is_aligned: channels % 8 == 0,
                    channel_values,
                    ..work(1, filters, channels, 1)
                };
                let work = Work { taps: [1, taps, taps], ..work };
                let all = if taps == 1 {
                    [planes(&work, false), planes(&work, true)].concat()
                } else {
                    lines(&work)
                };
                assert!(!all.is_empty(), "{work:?}");
                for tiling in all {
                    let (producer, consumer) = tiling.registers();
                    let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                    assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                    assert!(tiling.width <= FILTERS && tiling.width > 32, "{tiling:?}");
                    assert!(tiling.resident || !tiling.rearranged, "{tiling:?}");
                    if let Some(Lines { keep: true, .. }) = tiling.lines {
                        assert!(tiling.stages > work.steps(&tiling), "{tiling:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn packed_planes_fit_a_block_and_cover_all_images() {
    for (images, plane) in [(1, 49), (64, 49), (70, 9), (5, 75), (3, 225)] {
        for (filters, channels) in [(16, 8), (39, 72), (512, 2048), (5000, 104)] {
            for channel_values in [0, 16] {
                let work = Work { images, channel_values, vector: 1, ..work(plane, filters, channels, 1) };
                let all = packed(&work);
                assert!(!all.is_empty(), "{work:?}");
                for tiling in all {
                    let Some(Packed { pixels, .. }) = tiling.packed else { panic!("{tiling:?}") };
                    assert!(pixels <= tiling.pixels(), "{tiling:?}");
                    assert!(pixels % plane == 0 || pixels == tiling.pixels(), "{tiling:?}");
                    // No tile has pixels of more images than a stage holds.
                    let of = |first: usize| (first + pixels - 1) / plane - first / plane + 1;
                    let most = (0..plane).map(|tile| of(tile * pixels)).max().unwrap();
                    assert!(most * plane <= tiling.loaded_pixels(), "{tiling:?}");
                    let covered = tiling.tiles_of_pixels(images, 1, 1, plane) * pixels;
                    assert!((images * plane..images * plane + pixels).contains(&covered), "{tiling:?}");
                    let (producer, consumer) = tiling.registers();
                    let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                    assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                    assert!((32..=FILTERS).contains(&tiling.width) && tiling.stages >= 3, "{tiling:?}");
                }
            }
        }
    }
    // 225 pixels of 64 channels, three times, and planes of which not even one has room.
    assert!(packed(&work(5000, 64, 64, 1)).is_empty());
}

#[test]
fn windows_fit_a_block_and_cover_the_image() {
    for (filters, channels, taps) in [(16, 24, 3), (64, 64, 3), (200, 17, 3), (130, 128, 5), (48, 32, 9)] {
        for (rows, columns) in [(7, 7), (14, 14), (35, 35), (56, 160)] {
            let work = Work { images: 3, planes: 2, lines: rows, columns, ..work(1, filters, channels, 1) };
            let work = Work { taps: [3, taps, taps], ..work };
            let all = windows(&work, [1, 1]);
            assert!(!all.is_empty() || taps == 9, "{work:?}");
            for tiling in all {
                let window = tiling.window.unwrap();
                assert_eq!(window.columns * window.lines, tiling.pixels());
                assert_eq!(window.taps, window.lines_of_taps * taps);
                assert!(tiling.loaded_pixels() > tiling.pixels() && tiling.stages >= 2);
                let planes = work.images * work.planes;
                let covered = tiling.tiles_of_pixels(work.images, work.planes, rows, columns);
                assert!(covered * tiling.pixels() >= planes * rows * columns, "{tiling:?}");
                let (producer, consumer) = tiling.registers();
                let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                let is_alone = tiling.split == 1;
                assert!(is_alone || (tiling.rows() == 64 && tiling.pingpong == 1 && !tiling.resident));
                assert!(tiling.split <= tiling.steps(channels, work.taps), "{tiling:?}");
            }
        }
    }
    // Blocks share the steps of a window where tiles are few.
    let few = Work { taps: [1, 3, 3], lines: 7, columns: 7, ..work(1, 512, 512, 1) };
    assert!(windows(&few, [1, 1]).iter().any(|tiling| tiling.split == 8));
    // A single tap has no halo.
    assert!(windows(&work(100, 64, 64, 1), [1, 1]).is_empty());
}

/// Filters of any number of channels are streamed, where those that stay have no room.
#[test]
fn streamed_filters_fit_a_block() {
    for (filters, channels, taps) in [(16, 24, 3), (64, 128, 3), (200, 1280, 3), (130, 512, 5)] {
        for (rows, columns) in [(7, 16), (14, 24), (80, 80), (20, 160), (9, 256)] {
            let work = Work { lines: rows, columns, image_columns: columns, ..work(1, filters, channels, 1) };
            let work = Work { images: 3, taps: [1, taps, taps], pad: taps / 2, ..work };
            let all = lines(&work);
            let (streamed, resident): (Vec<_>, Vec<_>) = all.into_iter().partition(Tiling::is_streamed);
            assert!(!streamed.is_empty(), "{work:?}");
            assert!(channels <= 128 || resident.is_empty(), "{work:?}");
            for tiling in streamed {
                assert!(!tiling.resident && !tiling.rearranged && tiling.filter_stages() >= 3);
                let keeps = tiling.lines.is_some_and(|lines| lines.keep);
                assert!(tiling.stages >= if keeps { work.steps(&tiling) + 1 } else { 2 }, "{tiling:?}");
                let (filter_steps, taps) = (work.filter_steps(&tiling), taps * taps);
                assert!(tiling.shared(filter_steps, taps, 1) <= SHARED - SHARED_RESERVED, "{tiling:?}");
                assert!(work.time(&tiling).is_finite());
            }
        }
    }
}

#[test]
fn rectangles_fit_a_block_and_cover_the_image() {
    for (filters, channels, taps) in
        [(16, 24, [3; 3]), (96, 96, [3; 3]), (384, 384, [1, 3, 3]), (70, 8, [1, 5, 9])]
    {
        for (planes, rows, columns) in [(1, 7, 16), (2, 80, 80), (4, 120, 208), (4, 480, 832)] {
            let work = Work { images: 3, planes, lines: rows, columns, ..work(1, filters, channels, 1) };
            let work = Work { taps, pad: taps[2] / 2, image_columns: columns, ..work };
            let all = transposed(&work);
            assert!(!all.is_empty(), "{work:?}");
            for tiling in all {
                let tile = tiling.transposed.unwrap();
                assert_eq!(tile.lines * tile.line(), tiling.pixels());
                assert!(tile.columns.is_multiple_of(8) && tile.line() >= tile.columns + taps[2] - 1);
                assert!(tile.boxes * 64 >= tile.line() + (8 - work.pad % 8) % 8, "{tiling:?}");
                let covered = tiling.tiles_of_pixels(3, planes, rows, columns) * tile.lines * tile.columns;
                assert!(covered >= 3 * planes * rows * columns, "{tiling:?}");
                let (producer, consumer) = tiling.registers();
                let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                assert!(registers <= REGISTERS && consumer <= 240, "{tiling:?}");
                let filter_steps = work.filter_steps(&tiling);
                let shared = tiling.shared(filter_steps, taps.iter().product(), 1);
                assert!(shared <= SHARED - SHARED_RESERVED && work.time(&tiling) > 0.0, "{tiling:?}");
            }
        }
    }
}

#[test]
fn reordered_pixels_fit_a_block() {
    for (pixels, filters, channels) in [(49, 16, 24), (3136, 200, 37), (800_000, 384, 192), (200, 5000, 4096)]
    {
        for element in [2, 4] {
            let work = Work { element, ..work(pixels, filters, channels, 9) };
            let all = reordered(&work);
            assert!(!all.is_empty(), "{work:?}");
            for tiling in all {
                assert!(tiling.filters() < filters + 64 && tiling.stages >= 3, "{tiling:?}");
                let shared = tiling.shared(work.filter_steps(&tiling), 9, 1);
                assert!(shared <= SHARED / tiling.occupancy - SHARED_RESERVED, "{tiling:?}");
                // Every warp has a part of 32 pixels with a line of 128 bytes and a bank between them.
                assert!(tiling.threads() / 32 * 32 * 33 * 4 <= shared, "{tiling:?}");
                assert!(work.time(&tiling) > 0.0, "{tiling:?}");
            }
        }
    }
}

/// Where a tile's pixels begin and end, and what of the image's plane their taps see.
#[test]
fn runs_fit_a_block_and_cover_what_taps_see() {
    for (filters, channels, element, tf32x3) in [
        (16, 24, 4, false),
        (200, 64, 4, false),
        (130, 512, 4, true),
        (16, 24, 2, false),
        (130, 512, 2, false),
    ] {
        for ([_, height, width], taps, stride) in [
            ([1, 7, 7], 3, 1),
            ([1, 13, 15], 3, 1),
            ([1, 28, 28], 1, 1),
            ([1, 27, 27], 1, 1),
            ([1, 56, 56], 3, 1),
            ([1, 9, 14], 5, 2),
        ] {
            let extent = |len: usize| (len + taps / 2 * 2 - taps) / stride + 1;
            // Planes of 16 bits that are multiples of 16 bytes.
            let phases = 8 / common_power(8, height * width);
            let sight = Sight {
                image: [1, height, width],
                output: [1, extent(height), extent(width)],
                taps: [1, taps, taps],
                pads: [0, taps / 2, taps / 2],
                padded: taps > 1,
                strides: [1, stride, stride],
                dilations: [1; 3],
                element,
                phases: if element == 4 { (height * width % 4 == 0).then_some(1) } else { Some(phases) },
                packed: true,
            };
            let work = Work {
                images: 3,
                lines: extent(height),
                element,
                tf32x3,
                vector: 1,
                results_are_odd: sight.pixels() % 2 == 1,
                ..work(extent(width), filters, channels, 1)
            };
            let work = Work { taps: sight.taps, ..work };
            let all = runs(&work, &sight);
            assert!(!all.is_empty(), "{work:?}");
            let overlaps = |tiling: &Tiling| tiling.runs.is_some_and(|runs| runs.overlap > 0);
            assert_eq!(all.iter().any(overlaps), element == 2 && width == 27, "{work:?}");
            for tiling in all {
                let tile = tiling.runs.unwrap();
                let bulk = element == 2 && tile.by == By::Planes;
                assert!(
                    tile.pixels + tile.overlap <= tiling.pixels() && (bulk || tile.columns <= 256),
                    "{tiling:?}"
                );
                assert!(tile.columns * element > 128, "128 bytes are swizzled, {tiling:?}");
                let whole = match tile.by {
                    By::Planes => {
                        assert_eq!(tile.pitch, height * width);
                        tile.boxes * tile.columns >= tiling.depth * tile.pitch
                    }
                    By::Boxes if element == 2 => {
                        matches!(tile.pitch % 64, 16 | 48) && tiling.depth / phases >= 4
                    }
                    By::Boxes => sight.phases.is_some() && matches!(tile.pitch % 32, 8 | 24),
                    By::Channels => sight.phases.is_none() && tile.columns.is_multiple_of(32),
                };
                assert!(whole, "{tiling:?}");
                let at = |pixel: usize| {
                    let width_of = sight.output[2];
                    pixel / width_of * stride * width + pixel % width_of * stride
                };
                let last = (tile.pixels + tile.overlap).min(sight.pixels()) - 1;
                let seen = at(last) + (taps - 1) * (width + 1) + 1;
                let covered = (tile.boxes - 1) * tile.apart + tile.columns;
                assert!(tile.by == By::Planes || covered >= seen, "{tiling:?}");
                // No tile has pixels of more images than a stage holds.
                let plane = sight.pixels();
                let of = |first: usize| (first + tile.pixels - 1) / plane - first / plane + 1;
                let apart = tile.images > 1 || tile.by == By::Planes;
                let most = (0..plane).map(|number| of(number * tile.pixels)).max().unwrap();
                assert!(!apart || most <= tile.images, "{tiling:?}");
                let covered =
                    tiling.tiles_of_pixels(3, 1, work.lines, work.columns) * tile.pixels + 3 * tile.overlap;
                assert!(covered >= 3 * sight.pixels(), "{tiling:?}");
                let (producer, consumer) = tiling.registers();
                let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                let shared = tiling.shared(work.filter_steps(&tiling), taps * taps, 1);
                assert!(shared * tiling.occupancy <= SHARED, "{tiling:?}");
                assert!(work.time(&tiling) > 0.0 && tiling.is_streamed(), "{tiling:?}");
            }
        }
    }
}

#[test]
fn lines_are_whole_blocks_or_one() {
    let of = |columns| blocks(columns, columns).collect::<Vec<_>>();
    assert_eq!(of(64), [(64, 64)]);
    assert_eq!(of(160), [(32, 160)]);
    assert_eq!(of(48), [(16, 48), (64, 64)]);
    assert_eq!(of(14), [(16, 16)]);
    assert_eq!(of(72), []);
    assert_eq!([(32, 34), (64, 66)].map(|(image, output)| blocks(image, output).count()), [1, 0]);
    // A 3x3 filter's sums end a pixel to the right of a full line, not of one with room.
    assert_eq!([columns_behind(160, 3, 1, 160), columns_behind(56, 3, 1, 64)], [1, 0]);
}

#[test]
fn steps_leave_little_empty_and_stay_within_groups() {
    let depth_of = |channels, groups| depth(&Work { groups, ..work(100, 64, channels, 1) }, false);
    assert_eq!([8, 16, 24, 32, 48, 64, 72, 512].map(|c| depth_of(c, 1)), [16, 16, 32, 32, 64, 64, 32, 64]);
    assert_eq!([16, 32, 48, 64, 96].map(|c| depth_of(c, 2)), [16, 32, 16, 64, 32]);
    // Where it is known where they end, as a single one's.
    assert_eq!(depth(&Work { groups: 2, ..work(100, 64, 56, 1) }, true), depth_of(56, 1));
}

/// Three quarters of a row where these are as many steps as of whole rows would be, of which the last is not full.
#[test]
fn rows_that_are_not_full_are_of_few_channels() {
    let depths = |work: &Work| {
        let all: std::collections::BTreeSet<_> =
            rows_are_pixels::im2col(work).into_iter().map(|tiling| tiling.depth).collect();
        all.into_iter().collect::<Vec<_>>()
    };
    let of = |channels| depths(&work(4096, 64, channels, 9));
    assert_eq!([48, 96, 144, 192, 240, 672].map(of), [[48], [32], [48], [64], [64], [64]]);
    let wide = |tf32x3| depths(&Work { element: 4, tf32x3, ..work(4096, 64, 24, 9) });
    assert_eq!([false, true].map(wide), [[24], [32]]);
    let windows = rows_are_pixels::windows(&work(4096, 64, 48, 9), [1, 1]);
    assert!(windows.iter().any(|tiling| (tiling.depth, tiling.row(), tiling.loaded_row()) == (48, 128, 96)));
}
