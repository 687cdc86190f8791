//! The constants of the kernel's text, by the files that need them.

use fuseplan_gpu::constants;

constants! {
    /// The constants of `wgmma.cuh` and of the files around it.
    pub(super) struct WgmmaConstants {
        /// Spatial dimensions.
        dims: usize,
        groups: usize,
        filters: usize,
        channels: usize,
        /// Numbers that the operators need of a channel.
        channel_values: usize,
        /// Steps of a tile.
        steps: usize,
        split: usize,
        producers: usize,
        /// Taps whose filters shared memory has room for.
        filter_room: usize,
        /// Stages that filters have for themselves.
        filter_stages: usize,
        /// Stages of pixels as they come, where they are transposed, and bytes of one.
        raw_stages: usize,
        raw_bytes: usize,
        /// Columns of a tile that is a rectangle of an output's plane; else none.
        rectangle: usize,
        /// Arrivals that complete a stage's full barrier.
        full_arrivals: usize,
        /// Threads that load the parameters of channels.
        channel_producers: usize,
        /// Bytes of the table of the depth.
        table_bytes: usize,
        pingpong: usize,
        cooperative: usize,
        channel_stages: usize,
        atoms: usize,
        pixels_are_rows: bool,
        /// Whether the last tile of pixels has as many as others, if there are: some that the tile before has as well.
        moves_back: bool,
        /// Whether a tile's residuals are read before its main loop.
        residuals_early: bool,
        pixels_innermost: bool,
        /// How far apart the pixels of neighbouring rows lie.
        interleaved: usize,
        /// Pixels side by side in a stage, where any are.
        block_p: usize,
        /// Lines of a tile, where it has whole ones.
        lines: usize,
        /// Pixels of a stage.
        loaded_p: usize,
        tile_p: usize,
        /// Pixels that a tile covers.
        covered_p: usize,
        /// Pixels that it computes behind these, as the next one does.
        overlap: usize,
        tile_f: usize,
        tile_k: usize,
        /// Bytes from a row of a tile to the next one, and those that are loaded of it.
        row: usize,
        row_loaded: usize,
        stages: usize,
        occupancy: usize,
        resident: bool,
        rearranged: bool,
        streamed: bool,
        /// Elements of all filters, where blocks bring them into L2 before they wait for anything; else none.
        prefetched: usize,
        /// Whether the columns that a lane has of a tile are neighbouring filters.
        filters_by_lane: bool,
        tf32x3: bool,
        /// Bytes of shared memory that accumulators pass through, and of all.
        passed: usize,
        shared: usize,
        producer_registers: usize,
        consumer_registers: usize,
        y_vector: usize,
        taps: [usize; 3],
    }
}

constants! {
    /// Where filters have steps of their own, or are rearranged.
    pub(super) struct FilterStepsConstants {
        /// Steps of filters of a tile.
        filter_steps: usize,
    }
}

constants! {
    /// The constants of `streamed_filters.cuh` and `runs_words.cuh`.
    pub(super) struct StreamedTapsConstants {
        /// Taps of a stage of filters.
        streamed_taps: usize,
    }
}

constants! {
    /// The constants of `streamed_filters.cuh`.
    pub(super) struct StreamedConstants {
        /// Whether all taps of a plane come for some channels before others do.
        by_planes: bool,
        /// Whether a step's channels are in the order of slots.
        slotted: bool,
    }
}

constants! {
    /// Where filters have stages of their own.
    pub(super) struct PhasesConstants {
        /// Channels whose planes are one line to TMA.
        phases: usize,
    }
}

constants! {
    /// The constants of `reorder.cuh`.
    pub(super) struct ReorderConstants {
        /// Elements of a pixel and of a filter's tap, as they are reordered.
        image_channels: usize,
        filter_channels: usize,
        /// Filters in memory: all, and zeros behind them.
        filter_rows: usize,
        /// Bytes in front of the filters.
        filters_at: usize,
    }
}

constants! {
    /// The constants of `along_pixels.cuh` and `along_channels.cuh`.
    pub(super) struct ResidualsConstants {
        /// For how many parts residuals are read before results that are finished are written, if not before the tile's main loop; where
        /// results are written along pixels, of the next vectors.
        residuals_ahead: usize,
    }
}

constants! {
    /// The constants of `along_channels.cuh`.
    pub(super) struct PartsConstants {
        /// The most parts of a tile's epilogue that are unrolled, as a program has some room.
        unrolled_parts: usize,
    }
}

constants! {
    /// The constants of `window.cuh`.
    pub(super) struct WindowConstants {
        /// Taps of a step.
        step_taps: usize,
    }
}

constants! {
    /// The constants of `lines.cuh`.
    pub(super) struct LinesConstants {
        keep: bool,
        /// Columns behind a line's end onto which sums move.
        behind: usize,
        pad_h: usize,
        pad_w: usize,
    }
}

constants! {
    /// The constants of `transposed.cuh`.
    pub(super) struct TransposedConstants {
        /// Boxes in which a stage's pixels come.
        boxes: usize,
        pad: [usize; 3],
    }
}

constants! {
    /// The constants of `runs.cuh` and of the files behind it.
    pub(super) struct RunsConstants {
        /// Elements from a channel to the next in a stage.
        channel_pitch: usize,
        /// Whether a box is one of all channels, elements of it along a plane, and boxes one behind the other.
        by_boxes: bool,
        columns_of_box: usize,
        boxes: usize,
        /// From where a box along a plane begins to where the next one does.
        apart: usize,
        /// The most images that a tile has pixels of, whether their planes come as a whole, and elements in front of these.
        images: usize,
        whole: bool,
        guard: usize,
        image: [usize; 3],
        output: [usize; 3],
        padded: bool,
        pad: [usize; 3],
        dilation: [usize; 3],
        stride: [usize; 3],
    }
}

constants! {
    /// The constants of `along_planes.cuh`, `along_images.cuh` and `along_sectors.cuh`.
    pub(super) struct AlongPlanesConstants {
        /// Pixels of an output's plane, and elements from a filter's plane to the next one.
        y_plane: usize,
        y_pitch: usize,
    }
}

constants! {
    /// The constants of `along_planes.cuh`.
    pub(super) struct ImagesConstants {
        /// The most images that a tile has pixels of.
        y_images: usize,
    }
}

constants! {
    /// The constants of `along_images.cuh` and `neighbours_mainloop.cuh`.
    pub(super) struct NeighboursConstants {
        /// Pixels that lie side by side in a lane's rows.
        neighbours: usize,
        /// Whether a tile's images are whole, and results of all filters follow one another.
        whole_images: bool,
    }
}

constants! {
    /// The constants of `packed_planes.cuh`, `packed_mainloop.cuh` and `neighbours_mainloop.cuh`.
    pub(super) struct PackedConstants {
        /// Pixels of a plane.
        plane: usize,
        /// The most images that a tile has pixels of.
        images: usize,
    }
}

constants! {
    /// The constants of `filters.cuh`.
    pub(super) struct FiltersConstants {
        /// Elements that are read at once.
        w_vector: usize,
    }
}

constants! {
    /// How taps lie, where there are several.
    pub(super) struct TapConstants {
        pad: [usize; 3],
        dilation: [usize; 3],
    }
}

constants! {
    /// Whether groups are a dimension of the image's map.
    pub(super) struct GroupConstants {
        of_groups: bool,
    }
}

constants! {
    /// How far apart outputs' first taps lie, where that may be more than a pixel.
    pub(super) struct StrideConstants {
        stride: [usize; 3],
    }
}
