// Made by examples/generate.rs from the headers of HIP 7.2; not to be edited.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipDeviceArch_t(pub ::std::os::raw::c_uint);

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipUUID_t {
    pub bytes: [::std::os::raw::c_char; 16usize],
}
pub type hipUUID = hipUUID_t;
#[repr(C)]
pub struct hipDeviceProp_tR0600 {
    pub name: [::std::os::raw::c_char; 256usize],
    pub uuid: hipUUID,
    pub luid: [::std::os::raw::c_char; 8usize],
    pub luidDeviceNodeMask: ::std::os::raw::c_uint,
    pub totalGlobalMem: usize,
    pub sharedMemPerBlock: usize,
    pub regsPerBlock: ::std::os::raw::c_int,
    pub warpSize: ::std::os::raw::c_int,
    pub memPitch: usize,
    pub maxThreadsPerBlock: ::std::os::raw::c_int,
    pub maxThreadsDim: [::std::os::raw::c_int; 3usize],
    pub maxGridSize: [::std::os::raw::c_int; 3usize],
    pub clockRate: ::std::os::raw::c_int,
    pub totalConstMem: usize,
    pub major: ::std::os::raw::c_int,
    pub minor: ::std::os::raw::c_int,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub deviceOverlap: ::std::os::raw::c_int,
    pub multiProcessorCount: ::std::os::raw::c_int,
    pub kernelExecTimeoutEnabled: ::std::os::raw::c_int,
    pub integrated: ::std::os::raw::c_int,
    pub canMapHostMemory: ::std::os::raw::c_int,
    pub computeMode: ::std::os::raw::c_int,
    pub maxTexture1D: ::std::os::raw::c_int,
    pub maxTexture1DMipmap: ::std::os::raw::c_int,
    pub maxTexture1DLinear: ::std::os::raw::c_int,
    pub maxTexture2D: [::std::os::raw::c_int; 2usize],
    pub maxTexture2DMipmap: [::std::os::raw::c_int; 2usize],
    pub maxTexture2DLinear: [::std::os::raw::c_int; 3usize],
    pub maxTexture2DGather: [::std::os::raw::c_int; 2usize],
    pub maxTexture3D: [::std::os::raw::c_int; 3usize],
    pub maxTexture3DAlt: [::std::os::raw::c_int; 3usize],
    pub maxTextureCubemap: ::std::os::raw::c_int,
    pub maxTexture1DLayered: [::std::os::raw::c_int; 2usize],
    pub maxTexture2DLayered: [::std::os::raw::c_int; 3usize],
    pub maxTextureCubemapLayered: [::std::os::raw::c_int; 2usize],
    pub maxSurface1D: ::std::os::raw::c_int,
    pub maxSurface2D: [::std::os::raw::c_int; 2usize],
    pub maxSurface3D: [::std::os::raw::c_int; 3usize],
    pub maxSurface1DLayered: [::std::os::raw::c_int; 2usize],
    pub maxSurface2DLayered: [::std::os::raw::c_int; 3usize],
    pub maxSurfaceCubemap: ::std::os::raw::c_int,
    pub maxSurfaceCubemapLayered: [::std::os::raw::c_int; 2usize],
    pub surfaceAlignment: usize,
    pub concurrentKernels: ::std::os::raw::c_int,
    pub ECCEnabled: ::std::os::raw::c_int,
    pub pciBusID: ::std::os::raw::c_int,
    pub pciDeviceID: ::std::os::raw::c_int,
    pub pciDomainID: ::std::os::raw::c_int,
    pub tccDriver: ::std::os::raw::c_int,
    pub asyncEngineCount: ::std::os::raw::c_int,
    pub unifiedAddressing: ::std::os::raw::c_int,
    pub memoryClockRate: ::std::os::raw::c_int,
    pub memoryBusWidth: ::std::os::raw::c_int,
    pub l2CacheSize: ::std::os::raw::c_int,
    pub persistingL2CacheMaxSize: ::std::os::raw::c_int,
    pub maxThreadsPerMultiProcessor: ::std::os::raw::c_int,
    pub streamPrioritiesSupported: ::std::os::raw::c_int,
    pub globalL1CacheSupported: ::std::os::raw::c_int,
    pub localL1CacheSupported: ::std::os::raw::c_int,
    pub sharedMemPerMultiprocessor: usize,
    pub regsPerMultiprocessor: ::std::os::raw::c_int,
    pub managedMemory: ::std::os::raw::c_int,
    pub isMultiGpuBoard: ::std::os::raw::c_int,
    pub multiGpuBoardGroupID: ::std::os::raw::c_int,
    pub hostNativeAtomicSupported: ::std::os::raw::c_int,
    pub singleToDoublePrecisionPerfRatio: ::std::os::raw::c_int,
    pub pageableMemoryAccess: ::std::os::raw::c_int,
    pub concurrentManagedAccess: ::std::os::raw::c_int,
    pub computePreemptionSupported: ::std::os::raw::c_int,
    pub canUseHostPointerForRegisteredMem: ::std::os::raw::c_int,
    pub cooperativeLaunch: ::std::os::raw::c_int,
    pub cooperativeMultiDeviceLaunch: ::std::os::raw::c_int,
    pub sharedMemPerBlockOptin: usize,
    pub pageableMemoryAccessUsesHostPageTables: ::std::os::raw::c_int,
    pub directManagedMemAccessFromHost: ::std::os::raw::c_int,
    pub maxBlocksPerMultiProcessor: ::std::os::raw::c_int,
    pub accessPolicyMaxWindowSize: ::std::os::raw::c_int,
    pub reservedSharedMemPerBlock: usize,
    pub hostRegisterSupported: ::std::os::raw::c_int,
    pub sparseHipArraySupported: ::std::os::raw::c_int,
    pub hostRegisterReadOnlySupported: ::std::os::raw::c_int,
    pub timelineSemaphoreInteropSupported: ::std::os::raw::c_int,
    pub memoryPoolsSupported: ::std::os::raw::c_int,
    pub gpuDirectRDMASupported: ::std::os::raw::c_int,
    pub gpuDirectRDMAFlushWritesOptions: ::std::os::raw::c_uint,
    pub gpuDirectRDMAWritesOrdering: ::std::os::raw::c_int,
    pub memoryPoolSupportedHandleTypes: ::std::os::raw::c_uint,
    pub deferredMappingHipArraySupported: ::std::os::raw::c_int,
    pub ipcEventSupported: ::std::os::raw::c_int,
    pub clusterLaunch: ::std::os::raw::c_int,
    pub unifiedFunctionPointers: ::std::os::raw::c_int,
    pub reserved: [::std::os::raw::c_int; 63usize],
    pub hipReserved: [::std::os::raw::c_int; 32usize],
    pub gcnArchName: [::std::os::raw::c_char; 256usize],
    pub maxSharedMemoryPerMultiProcessor: usize,
    pub clockInstructionRate: ::std::os::raw::c_int,
    pub arch: hipDeviceArch_t,
    pub hdpMemFlushCntl: *mut ::std::os::raw::c_uint,
    pub hdpRegFlushCntl: *mut ::std::os::raw::c_uint,
    pub cooperativeMultiDeviceUnmatchedFunc: ::std::os::raw::c_int,
    pub cooperativeMultiDeviceUnmatchedGridDim: ::std::os::raw::c_int,
    pub cooperativeMultiDeviceUnmatchedBlockDim: ::std::os::raw::c_int,
    pub cooperativeMultiDeviceUnmatchedSharedMem: ::std::os::raw::c_int,
    pub isLargeBar: ::std::os::raw::c_int,
    pub asicRevision: ::std::os::raw::c_int,
}
impl hipError_t {
    pub const hipSuccess: hipError_t = hipError_t(0);
    pub const hipErrorInvalidValue: hipError_t = hipError_t(1);
    pub const hipErrorOutOfMemory: hipError_t = hipError_t(2);
    pub const hipErrorMemoryAllocation: hipError_t = hipError_t(2);
    pub const hipErrorNotInitialized: hipError_t = hipError_t(3);
    pub const hipErrorInitializationError: hipError_t = hipError_t(3);
    pub const hipErrorDeinitialized: hipError_t = hipError_t(4);
    pub const hipErrorProfilerDisabled: hipError_t = hipError_t(5);
    pub const hipErrorProfilerNotInitialized: hipError_t = hipError_t(6);
    pub const hipErrorProfilerAlreadyStarted: hipError_t = hipError_t(7);
    pub const hipErrorProfilerAlreadyStopped: hipError_t = hipError_t(8);
    pub const hipErrorInvalidConfiguration: hipError_t = hipError_t(9);
    pub const hipErrorInvalidPitchValue: hipError_t = hipError_t(12);
    pub const hipErrorInvalidSymbol: hipError_t = hipError_t(13);
    pub const hipErrorInvalidDevicePointer: hipError_t = hipError_t(17);
    pub const hipErrorInvalidMemcpyDirection: hipError_t = hipError_t(21);
    pub const hipErrorInsufficientDriver: hipError_t = hipError_t(35);
    pub const hipErrorMissingConfiguration: hipError_t = hipError_t(52);
    pub const hipErrorPriorLaunchFailure: hipError_t = hipError_t(53);
    pub const hipErrorInvalidDeviceFunction: hipError_t = hipError_t(98);
    pub const hipErrorNoDevice: hipError_t = hipError_t(100);
    pub const hipErrorInvalidDevice: hipError_t = hipError_t(101);
    pub const hipErrorInvalidImage: hipError_t = hipError_t(200);
    pub const hipErrorInvalidContext: hipError_t = hipError_t(201);
    pub const hipErrorContextAlreadyCurrent: hipError_t = hipError_t(202);
    pub const hipErrorMapFailed: hipError_t = hipError_t(205);
    pub const hipErrorMapBufferObjectFailed: hipError_t = hipError_t(205);
    pub const hipErrorUnmapFailed: hipError_t = hipError_t(206);
    pub const hipErrorArrayIsMapped: hipError_t = hipError_t(207);
    pub const hipErrorAlreadyMapped: hipError_t = hipError_t(208);
    pub const hipErrorNoBinaryForGpu: hipError_t = hipError_t(209);
    pub const hipErrorAlreadyAcquired: hipError_t = hipError_t(210);
    pub const hipErrorNotMapped: hipError_t = hipError_t(211);
    pub const hipErrorNotMappedAsArray: hipError_t = hipError_t(212);
    pub const hipErrorNotMappedAsPointer: hipError_t = hipError_t(213);
    pub const hipErrorECCNotCorrectable: hipError_t = hipError_t(214);
    pub const hipErrorUnsupportedLimit: hipError_t = hipError_t(215);
    pub const hipErrorContextAlreadyInUse: hipError_t = hipError_t(216);
    pub const hipErrorPeerAccessUnsupported: hipError_t = hipError_t(217);
    pub const hipErrorInvalidKernelFile: hipError_t = hipError_t(218);
    pub const hipErrorInvalidGraphicsContext: hipError_t = hipError_t(219);
    pub const hipErrorInvalidSource: hipError_t = hipError_t(300);
    pub const hipErrorFileNotFound: hipError_t = hipError_t(301);
    pub const hipErrorSharedObjectSymbolNotFound: hipError_t = hipError_t(302);
    pub const hipErrorSharedObjectInitFailed: hipError_t = hipError_t(303);
    pub const hipErrorOperatingSystem: hipError_t = hipError_t(304);
    pub const hipErrorInvalidHandle: hipError_t = hipError_t(400);
    pub const hipErrorInvalidResourceHandle: hipError_t = hipError_t(400);
    pub const hipErrorIllegalState: hipError_t = hipError_t(401);
    pub const hipErrorNotFound: hipError_t = hipError_t(500);
    pub const hipErrorNotReady: hipError_t = hipError_t(600);
    pub const hipErrorIllegalAddress: hipError_t = hipError_t(700);
    pub const hipErrorLaunchOutOfResources: hipError_t = hipError_t(701);
    pub const hipErrorLaunchTimeOut: hipError_t = hipError_t(702);
    pub const hipErrorPeerAccessAlreadyEnabled: hipError_t = hipError_t(704);
    pub const hipErrorPeerAccessNotEnabled: hipError_t = hipError_t(705);
    pub const hipErrorSetOnActiveProcess: hipError_t = hipError_t(708);
    pub const hipErrorContextIsDestroyed: hipError_t = hipError_t(709);
    pub const hipErrorAssert: hipError_t = hipError_t(710);
    pub const hipErrorHostMemoryAlreadyRegistered: hipError_t = hipError_t(712);
    pub const hipErrorHostMemoryNotRegistered: hipError_t = hipError_t(713);
    pub const hipErrorLaunchFailure: hipError_t = hipError_t(719);
    pub const hipErrorCooperativeLaunchTooLarge: hipError_t = hipError_t(720);
    pub const hipErrorNotSupported: hipError_t = hipError_t(801);
    pub const hipErrorStreamCaptureUnsupported: hipError_t = hipError_t(900);
    pub const hipErrorStreamCaptureInvalidated: hipError_t = hipError_t(901);
    pub const hipErrorStreamCaptureMerge: hipError_t = hipError_t(902);
    pub const hipErrorStreamCaptureUnmatched: hipError_t = hipError_t(903);
    pub const hipErrorStreamCaptureUnjoined: hipError_t = hipError_t(904);
    pub const hipErrorStreamCaptureIsolation: hipError_t = hipError_t(905);
    pub const hipErrorStreamCaptureImplicit: hipError_t = hipError_t(906);
    pub const hipErrorCapturedEvent: hipError_t = hipError_t(907);
    pub const hipErrorStreamCaptureWrongThread: hipError_t = hipError_t(908);
    pub const hipErrorGraphExecUpdateFailure: hipError_t = hipError_t(910);
    pub const hipErrorInvalidChannelDescriptor: hipError_t = hipError_t(911);
    pub const hipErrorInvalidTexture: hipError_t = hipError_t(912);
    pub const hipErrorUnknown: hipError_t = hipError_t(999);
    pub const hipErrorRuntimeMemory: hipError_t = hipError_t(1052);
    pub const hipErrorRuntimeOther: hipError_t = hipError_t(1053);
    pub const hipErrorTbd: hipError_t = hipError_t(1054);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipError_t(pub ::std::os::raw::c_uint);
impl hipDeviceAttribute_t {
    pub const hipDeviceAttributeCudaCompatibleBegin: hipDeviceAttribute_t = hipDeviceAttribute_t(0);
    pub const hipDeviceAttributeEccEnabled: hipDeviceAttribute_t = hipDeviceAttribute_t(0);
    pub const hipDeviceAttributeAccessPolicyMaxWindowSize: hipDeviceAttribute_t = hipDeviceAttribute_t(1);
    pub const hipDeviceAttributeAsyncEngineCount: hipDeviceAttribute_t = hipDeviceAttribute_t(2);
    pub const hipDeviceAttributeCanMapHostMemory: hipDeviceAttribute_t = hipDeviceAttribute_t(3);
    pub const hipDeviceAttributeCanUseHostPointerForRegisteredMem: hipDeviceAttribute_t =
        hipDeviceAttribute_t(4);
    pub const hipDeviceAttributeClockRate: hipDeviceAttribute_t = hipDeviceAttribute_t(5);
    pub const hipDeviceAttributeComputeMode: hipDeviceAttribute_t = hipDeviceAttribute_t(6);
    pub const hipDeviceAttributeComputePreemptionSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(7);
    pub const hipDeviceAttributeConcurrentKernels: hipDeviceAttribute_t = hipDeviceAttribute_t(8);
    pub const hipDeviceAttributeConcurrentManagedAccess: hipDeviceAttribute_t = hipDeviceAttribute_t(9);
    pub const hipDeviceAttributeCooperativeLaunch: hipDeviceAttribute_t = hipDeviceAttribute_t(10);
    pub const hipDeviceAttributeCooperativeMultiDeviceLaunch: hipDeviceAttribute_t = hipDeviceAttribute_t(11);
    pub const hipDeviceAttributeDeviceOverlap: hipDeviceAttribute_t = hipDeviceAttribute_t(12);
    pub const hipDeviceAttributeDirectManagedMemAccessFromHost: hipDeviceAttribute_t =
        hipDeviceAttribute_t(13);
    pub const hipDeviceAttributeGlobalL1CacheSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(14);
    pub const hipDeviceAttributeHostNativeAtomicSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(15);
    pub const hipDeviceAttributeIntegrated: hipDeviceAttribute_t = hipDeviceAttribute_t(16);
    pub const hipDeviceAttributeIsMultiGpuBoard: hipDeviceAttribute_t = hipDeviceAttribute_t(17);
    pub const hipDeviceAttributeKernelExecTimeout: hipDeviceAttribute_t = hipDeviceAttribute_t(18);
    pub const hipDeviceAttributeL2CacheSize: hipDeviceAttribute_t = hipDeviceAttribute_t(19);
    pub const hipDeviceAttributeLocalL1CacheSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(20);
    pub const hipDeviceAttributeLuid: hipDeviceAttribute_t = hipDeviceAttribute_t(21);
    pub const hipDeviceAttributeLuidDeviceNodeMask: hipDeviceAttribute_t = hipDeviceAttribute_t(22);
    pub const hipDeviceAttributeComputeCapabilityMajor: hipDeviceAttribute_t = hipDeviceAttribute_t(23);
    pub const hipDeviceAttributeManagedMemory: hipDeviceAttribute_t = hipDeviceAttribute_t(24);
    pub const hipDeviceAttributeMaxBlocksPerMultiProcessor: hipDeviceAttribute_t = hipDeviceAttribute_t(25);
    pub const hipDeviceAttributeMaxBlockDimX: hipDeviceAttribute_t = hipDeviceAttribute_t(26);
    pub const hipDeviceAttributeMaxBlockDimY: hipDeviceAttribute_t = hipDeviceAttribute_t(27);
    pub const hipDeviceAttributeMaxBlockDimZ: hipDeviceAttribute_t = hipDeviceAttribute_t(28);
    pub const hipDeviceAttributeMaxGridDimX: hipDeviceAttribute_t = hipDeviceAttribute_t(29);
    pub const hipDeviceAttributeMaxGridDimY: hipDeviceAttribute_t = hipDeviceAttribute_t(30);
    pub const hipDeviceAttributeMaxGridDimZ: hipDeviceAttribute_t = hipDeviceAttribute_t(31);
    pub const hipDeviceAttributeMaxSurface1D: hipDeviceAttribute_t = hipDeviceAttribute_t(32);
    pub const hipDeviceAttributeMaxSurface1DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(33);
    pub const hipDeviceAttributeMaxSurface2D: hipDeviceAttribute_t = hipDeviceAttribute_t(34);
    pub const hipDeviceAttributeMaxSurface2DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(35);
    pub const hipDeviceAttributeMaxSurface3D: hipDeviceAttribute_t = hipDeviceAttribute_t(36);
    pub const hipDeviceAttributeMaxSurfaceCubemap: hipDeviceAttribute_t = hipDeviceAttribute_t(37);
    pub const hipDeviceAttributeMaxSurfaceCubemapLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(38);
    pub const hipDeviceAttributeMaxTexture1DWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(39);
    pub const hipDeviceAttributeMaxTexture1DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(40);
    pub const hipDeviceAttributeMaxTexture1DLinear: hipDeviceAttribute_t = hipDeviceAttribute_t(41);
    pub const hipDeviceAttributeMaxTexture1DMipmap: hipDeviceAttribute_t = hipDeviceAttribute_t(42);
    pub const hipDeviceAttributeMaxTexture2DWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(43);
    pub const hipDeviceAttributeMaxTexture2DHeight: hipDeviceAttribute_t = hipDeviceAttribute_t(44);
    pub const hipDeviceAttributeMaxTexture2DGather: hipDeviceAttribute_t = hipDeviceAttribute_t(45);
    pub const hipDeviceAttributeMaxTexture2DLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(46);
    pub const hipDeviceAttributeMaxTexture2DLinear: hipDeviceAttribute_t = hipDeviceAttribute_t(47);
    pub const hipDeviceAttributeMaxTexture2DMipmap: hipDeviceAttribute_t = hipDeviceAttribute_t(48);
    pub const hipDeviceAttributeMaxTexture3DWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(49);
    pub const hipDeviceAttributeMaxTexture3DHeight: hipDeviceAttribute_t = hipDeviceAttribute_t(50);
    pub const hipDeviceAttributeMaxTexture3DDepth: hipDeviceAttribute_t = hipDeviceAttribute_t(51);
    pub const hipDeviceAttributeMaxTexture3DAlt: hipDeviceAttribute_t = hipDeviceAttribute_t(52);
    pub const hipDeviceAttributeMaxTextureCubemap: hipDeviceAttribute_t = hipDeviceAttribute_t(53);
    pub const hipDeviceAttributeMaxTextureCubemapLayered: hipDeviceAttribute_t = hipDeviceAttribute_t(54);
    pub const hipDeviceAttributeMaxThreadsDim: hipDeviceAttribute_t = hipDeviceAttribute_t(55);
    pub const hipDeviceAttributeMaxThreadsPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(56);
    pub const hipDeviceAttributeMaxThreadsPerMultiProcessor: hipDeviceAttribute_t = hipDeviceAttribute_t(57);
    pub const hipDeviceAttributeMaxPitch: hipDeviceAttribute_t = hipDeviceAttribute_t(58);
    pub const hipDeviceAttributeMemoryBusWidth: hipDeviceAttribute_t = hipDeviceAttribute_t(59);
    pub const hipDeviceAttributeMemoryClockRate: hipDeviceAttribute_t = hipDeviceAttribute_t(60);
    pub const hipDeviceAttributeComputeCapabilityMinor: hipDeviceAttribute_t = hipDeviceAttribute_t(61);
    pub const hipDeviceAttributeMultiGpuBoardGroupID: hipDeviceAttribute_t = hipDeviceAttribute_t(62);
    pub const hipDeviceAttributeMultiprocessorCount: hipDeviceAttribute_t = hipDeviceAttribute_t(63);
    pub const hipDeviceAttributeUnused1: hipDeviceAttribute_t = hipDeviceAttribute_t(64);
    pub const hipDeviceAttributePageableMemoryAccess: hipDeviceAttribute_t = hipDeviceAttribute_t(65);
    pub const hipDeviceAttributePageableMemoryAccessUsesHostPageTables: hipDeviceAttribute_t =
        hipDeviceAttribute_t(66);
    pub const hipDeviceAttributePciBusId: hipDeviceAttribute_t = hipDeviceAttribute_t(67);
    pub const hipDeviceAttributePciDeviceId: hipDeviceAttribute_t = hipDeviceAttribute_t(68);
    pub const hipDeviceAttributePciDomainId: hipDeviceAttribute_t = hipDeviceAttribute_t(69);
    pub const hipDeviceAttributePciDomainID: hipDeviceAttribute_t = hipDeviceAttribute_t(69);
    pub const hipDeviceAttributePersistingL2CacheMaxSize: hipDeviceAttribute_t = hipDeviceAttribute_t(70);
    pub const hipDeviceAttributeMaxRegistersPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(71);
    pub const hipDeviceAttributeMaxRegistersPerMultiprocessor: hipDeviceAttribute_t =
        hipDeviceAttribute_t(72);
    pub const hipDeviceAttributeReservedSharedMemPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(73);
    pub const hipDeviceAttributeMaxSharedMemoryPerBlock: hipDeviceAttribute_t = hipDeviceAttribute_t(74);
    pub const hipDeviceAttributeSharedMemPerBlockOptin: hipDeviceAttribute_t = hipDeviceAttribute_t(75);
    pub const hipDeviceAttributeSharedMemPerMultiprocessor: hipDeviceAttribute_t = hipDeviceAttribute_t(76);
    pub const hipDeviceAttributeSingleToDoublePrecisionPerfRatio: hipDeviceAttribute_t =
        hipDeviceAttribute_t(77);
    pub const hipDeviceAttributeStreamPrioritiesSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(78);
    pub const hipDeviceAttributeSurfaceAlignment: hipDeviceAttribute_t = hipDeviceAttribute_t(79);
    pub const hipDeviceAttributeTccDriver: hipDeviceAttribute_t = hipDeviceAttribute_t(80);
    pub const hipDeviceAttributeTextureAlignment: hipDeviceAttribute_t = hipDeviceAttribute_t(81);
    pub const hipDeviceAttributeTexturePitchAlignment: hipDeviceAttribute_t = hipDeviceAttribute_t(82);
    pub const hipDeviceAttributeTotalConstantMemory: hipDeviceAttribute_t = hipDeviceAttribute_t(83);
    pub const hipDeviceAttributeTotalGlobalMem: hipDeviceAttribute_t = hipDeviceAttribute_t(84);
    pub const hipDeviceAttributeUnifiedAddressing: hipDeviceAttribute_t = hipDeviceAttribute_t(85);
    pub const hipDeviceAttributeUnused2: hipDeviceAttribute_t = hipDeviceAttribute_t(86);
    pub const hipDeviceAttributeWarpSize: hipDeviceAttribute_t = hipDeviceAttribute_t(87);
    pub const hipDeviceAttributeMemoryPoolsSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(88);
    pub const hipDeviceAttributeVirtualMemoryManagementSupported: hipDeviceAttribute_t =
        hipDeviceAttribute_t(89);
    pub const hipDeviceAttributeHostRegisterSupported: hipDeviceAttribute_t = hipDeviceAttribute_t(90);
    pub const hipDeviceAttributeMemoryPoolSupportedHandleTypes: hipDeviceAttribute_t =
        hipDeviceAttribute_t(91);
    pub const hipDeviceAttributeHostNumaId: hipDeviceAttribute_t = hipDeviceAttribute_t(92);
    pub const hipDeviceAttributeCudaCompatibleEnd: hipDeviceAttribute_t = hipDeviceAttribute_t(9999);
    pub const hipDeviceAttributeAmdSpecificBegin: hipDeviceAttribute_t = hipDeviceAttribute_t(10000);
    pub const hipDeviceAttributeClockInstructionRate: hipDeviceAttribute_t = hipDeviceAttribute_t(10000);
    pub const hipDeviceAttributeUnused3: hipDeviceAttribute_t = hipDeviceAttribute_t(10001);
    pub const hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10002);
    pub const hipDeviceAttributeUnused4: hipDeviceAttribute_t = hipDeviceAttribute_t(10003);
    pub const hipDeviceAttributeUnused5: hipDeviceAttribute_t = hipDeviceAttribute_t(10004);
    pub const hipDeviceAttributeHdpMemFlushCntl: hipDeviceAttribute_t = hipDeviceAttribute_t(10005);
    pub const hipDeviceAttributeHdpRegFlushCntl: hipDeviceAttribute_t = hipDeviceAttribute_t(10006);
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedFunc: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10007);
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedGridDim: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10008);
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedBlockDim: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10009);
    pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10010);
    pub const hipDeviceAttributeIsLargeBar: hipDeviceAttribute_t = hipDeviceAttribute_t(10011);
    pub const hipDeviceAttributeAsicRevision: hipDeviceAttribute_t = hipDeviceAttribute_t(10012);
    pub const hipDeviceAttributeCanUseStreamWaitValue: hipDeviceAttribute_t = hipDeviceAttribute_t(10013);
    pub const hipDeviceAttributeImageSupport: hipDeviceAttribute_t = hipDeviceAttribute_t(10014);
    pub const hipDeviceAttributePhysicalMultiProcessorCount: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10015);
    pub const hipDeviceAttributeFineGrainSupport: hipDeviceAttribute_t = hipDeviceAttribute_t(10016);
    pub const hipDeviceAttributeWallClockRate: hipDeviceAttribute_t = hipDeviceAttribute_t(10017);
    pub const hipDeviceAttributeNumberOfXccs: hipDeviceAttribute_t = hipDeviceAttribute_t(10018);
    pub const hipDeviceAttributeMaxAvailableVgprsPerThread: hipDeviceAttribute_t =
        hipDeviceAttribute_t(10019);
    pub const hipDeviceAttributePciChipId: hipDeviceAttribute_t = hipDeviceAttribute_t(10020);
    pub const hipDeviceAttributeAmdSpecificEnd: hipDeviceAttribute_t = hipDeviceAttribute_t(19999);
    pub const hipDeviceAttributeVendorSpecificBegin: hipDeviceAttribute_t = hipDeviceAttribute_t(20000);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipDeviceAttribute_t(pub ::std::os::raw::c_uint);
impl hipMemcpyKind {
    pub const hipMemcpyHostToHost: hipMemcpyKind = hipMemcpyKind(0);
    pub const hipMemcpyHostToDevice: hipMemcpyKind = hipMemcpyKind(1);
    pub const hipMemcpyDeviceToHost: hipMemcpyKind = hipMemcpyKind(2);
    pub const hipMemcpyDeviceToDevice: hipMemcpyKind = hipMemcpyKind(3);
    pub const hipMemcpyDefault: hipMemcpyKind = hipMemcpyKind(4);
    pub const hipMemcpyDeviceToDeviceNoCU: hipMemcpyKind = hipMemcpyKind(1024);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipMemcpyKind(pub ::std::os::raw::c_uint);
impl hipFunction_attribute {
    pub const HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: hipFunction_attribute = hipFunction_attribute(0);
    pub const HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(1);
    pub const HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(2);
    pub const HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(3);
    pub const HIP_FUNC_ATTRIBUTE_NUM_REGS: hipFunction_attribute = hipFunction_attribute(4);
    pub const HIP_FUNC_ATTRIBUTE_PTX_VERSION: hipFunction_attribute = hipFunction_attribute(5);
    pub const HIP_FUNC_ATTRIBUTE_BINARY_VERSION: hipFunction_attribute = hipFunction_attribute(6);
    pub const HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA: hipFunction_attribute = hipFunction_attribute(7);
    pub const HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: hipFunction_attribute =
        hipFunction_attribute(8);
    pub const HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: hipFunction_attribute =
        hipFunction_attribute(9);
    pub const HIP_FUNC_ATTRIBUTE_MAX: hipFunction_attribute = hipFunction_attribute(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipFunction_attribute(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ihipStream_t {
    _unused: [u8; 0],
}
pub type hipStream_t = *mut ihipStream_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ihipModule_t {
    _unused: [u8; 0],
}
pub type hipModule_t = *mut ihipModule_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ihipModuleSymbol_t {
    _unused: [u8; 0],
}
pub type hipFunction_t = *mut ihipModuleSymbol_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ihipEvent_t {
    _unused: [u8; 0],
}
pub type hipEvent_t = *mut ihipEvent_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ihipGraph {
    _unused: [u8; 0],
}
pub type hipGraph_t = *mut ihipGraph;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipGraphNode {
    _unused: [u8; 0],
}
pub type hipGraphNode_t = *mut hipGraphNode;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipGraphExec {
    _unused: [u8; 0],
}
pub type hipGraphExec_t = *mut hipGraphExec;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipUserObject {
    _unused: [u8; 0],
}
pub type hipUserObject_t = *mut hipUserObject;
pub type hipHostFn_t = ::std::option::Option<unsafe extern "C" fn(userData: *mut ::std::os::raw::c_void)>;
impl hipStreamCaptureMode {
    pub const hipStreamCaptureModeGlobal: hipStreamCaptureMode = hipStreamCaptureMode(0);
    pub const hipStreamCaptureModeThreadLocal: hipStreamCaptureMode = hipStreamCaptureMode(1);
    pub const hipStreamCaptureModeRelaxed: hipStreamCaptureMode = hipStreamCaptureMode(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipStreamCaptureMode(pub ::std::os::raw::c_uint);
impl hipStreamCaptureStatus {
    pub const hipStreamCaptureStatusNone: hipStreamCaptureStatus = hipStreamCaptureStatus(0);
    pub const hipStreamCaptureStatusActive: hipStreamCaptureStatus = hipStreamCaptureStatus(1);
    pub const hipStreamCaptureStatusInvalidated: hipStreamCaptureStatus = hipStreamCaptureStatus(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipStreamCaptureStatus(pub ::std::os::raw::c_uint);
pub struct Hip {
    __library: ::libloading::Library,
    pub hipInit: unsafe extern "C" fn(flags: ::std::os::raw::c_uint) -> hipError_t,
    pub hipRuntimeGetVersion: unsafe extern "C" fn(runtimeVersion: *mut ::std::os::raw::c_int) -> hipError_t,
    pub hipSetDevice: unsafe extern "C" fn(deviceId: ::std::os::raw::c_int) -> hipError_t,
    pub hipGetDevice: unsafe extern "C" fn(deviceId: *mut ::std::os::raw::c_int) -> hipError_t,
    pub hipGetDeviceCount: unsafe extern "C" fn(count: *mut ::std::os::raw::c_int) -> hipError_t,
    pub hipDeviceGetAttribute: unsafe extern "C" fn(
        pi: *mut ::std::os::raw::c_int,
        attr: hipDeviceAttribute_t,
        deviceId: ::std::os::raw::c_int,
    ) -> hipError_t,
    pub hipGetDevicePropertiesR0600:
        unsafe extern "C" fn(prop: *mut hipDeviceProp_tR0600, deviceId: ::std::os::raw::c_int) -> hipError_t,
    pub hipGetErrorName: unsafe extern "C" fn(hip_error: hipError_t) -> *const ::std::os::raw::c_char,
    pub hipGetErrorString: unsafe extern "C" fn(hipError: hipError_t) -> *const ::std::os::raw::c_char,
    pub hipStreamCreateWithFlags:
        unsafe extern "C" fn(stream: *mut hipStream_t, flags: ::std::os::raw::c_uint) -> hipError_t,
    pub hipStreamDestroy: unsafe extern "C" fn(stream: hipStream_t) -> hipError_t,
    pub hipStreamSynchronize: unsafe extern "C" fn(stream: hipStream_t) -> hipError_t,
    pub hipEventCreateWithFlags:
        unsafe extern "C" fn(event: *mut hipEvent_t, flags: ::std::os::raw::c_uint) -> hipError_t,
    pub hipEventRecord: unsafe extern "C" fn(event: hipEvent_t, stream: hipStream_t) -> hipError_t,
    pub hipEventDestroy: unsafe extern "C" fn(event: hipEvent_t) -> hipError_t,
    pub hipEventSynchronize: unsafe extern "C" fn(event: hipEvent_t) -> hipError_t,
    pub hipEventElapsedTime:
        unsafe extern "C" fn(ms: *mut f32, start: hipEvent_t, stop: hipEvent_t) -> hipError_t,
    pub hipMalloc: unsafe extern "C" fn(ptr: *mut *mut ::std::os::raw::c_void, size: usize) -> hipError_t,
    pub hipFree: unsafe extern "C" fn(ptr: *mut ::std::os::raw::c_void) -> hipError_t,
    pub hipMemcpyAsync: unsafe extern "C" fn(
        dst: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        sizeBytes: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> hipError_t,
    pub hipMemsetAsync: unsafe extern "C" fn(
        dst: *mut ::std::os::raw::c_void,
        value: ::std::os::raw::c_int,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t,
    pub hipModuleUnload: unsafe extern "C" fn(module: hipModule_t) -> hipError_t,
    pub hipModuleGetFunction: unsafe extern "C" fn(
        function: *mut hipFunction_t,
        module: hipModule_t,
        kname: *const ::std::os::raw::c_char,
    ) -> hipError_t,
    pub hipFuncGetAttribute: unsafe extern "C" fn(
        value: *mut ::std::os::raw::c_int,
        attrib: hipFunction_attribute,
        hfunc: hipFunction_t,
    ) -> hipError_t,
    pub hipModuleLoadData:
        unsafe extern "C" fn(module: *mut hipModule_t, image: *const ::std::os::raw::c_void) -> hipError_t,
    pub hipModuleLaunchKernel: unsafe extern "C" fn(
        f: hipFunction_t,
        gridDimX: ::std::os::raw::c_uint,
        gridDimY: ::std::os::raw::c_uint,
        gridDimZ: ::std::os::raw::c_uint,
        blockDimX: ::std::os::raw::c_uint,
        blockDimY: ::std::os::raw::c_uint,
        blockDimZ: ::std::os::raw::c_uint,
        sharedMemBytes: ::std::os::raw::c_uint,
        stream: hipStream_t,
        kernelParams: *mut *mut ::std::os::raw::c_void,
        extra: *mut *mut ::std::os::raw::c_void,
    ) -> hipError_t,
    pub hipModuleOccupancyMaxActiveBlocksPerMultiprocessor: unsafe extern "C" fn(
        numBlocks: *mut ::std::os::raw::c_int,
        f: hipFunction_t,
        blockSize: ::std::os::raw::c_int,
        dynSharedMemPerBlk: usize,
    ) -> hipError_t,
    pub hipStreamBeginCapture:
        unsafe extern "C" fn(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t,
    pub hipStreamEndCapture: unsafe extern "C" fn(stream: hipStream_t, pGraph: *mut hipGraph_t) -> hipError_t,
    pub hipStreamGetCaptureInfo_v2: unsafe extern "C" fn(
        stream: hipStream_t,
        captureStatus_out: *mut hipStreamCaptureStatus,
        id_out: *mut ::std::os::raw::c_ulonglong,
        graph_out: *mut hipGraph_t,
        dependencies_out: *mut *const hipGraphNode_t,
        numDependencies_out: *mut usize,
    ) -> hipError_t,
    pub hipThreadExchangeStreamCaptureMode:
        unsafe extern "C" fn(mode: *mut hipStreamCaptureMode) -> hipError_t,
    pub hipGraphDestroy: unsafe extern "C" fn(graph: hipGraph_t) -> hipError_t,
    pub hipGraphInstantiateWithFlags: unsafe extern "C" fn(
        pGraphExec: *mut hipGraphExec_t,
        graph: hipGraph_t,
        flags: ::std::os::raw::c_ulonglong,
    ) -> hipError_t,
    pub hipGraphLaunch: unsafe extern "C" fn(graphExec: hipGraphExec_t, stream: hipStream_t) -> hipError_t,
    pub hipGraphExecDestroy: unsafe extern "C" fn(graphExec: hipGraphExec_t) -> hipError_t,
    pub hipGraphAddChildGraphNode: unsafe extern "C" fn(
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        childGraph: hipGraph_t,
    ) -> hipError_t,
    pub hipGraphExecChildGraphNodeSetParams: unsafe extern "C" fn(
        hGraphExec: hipGraphExec_t,
        node: hipGraphNode_t,
        childGraph: hipGraph_t,
    ) -> hipError_t,
    pub hipUserObjectCreate: unsafe extern "C" fn(
        object_out: *mut hipUserObject_t,
        ptr: *mut ::std::os::raw::c_void,
        destroy: hipHostFn_t,
        initialRefcount: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
    ) -> hipError_t,
    pub hipUserObjectRelease:
        unsafe extern "C" fn(object: hipUserObject_t, count: ::std::os::raw::c_uint) -> hipError_t,
    pub hipGraphRetainUserObject: unsafe extern "C" fn(
        graph: hipGraph_t,
        object: hipUserObject_t,
        count: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
    ) -> hipError_t,
}
impl Hip {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let library = ::libloading::Library::new(path)?;
        Self::from_library(library)
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let hipInit = __library.get(b"hipInit\0").map(|sym| *sym)?;
        let hipRuntimeGetVersion = __library.get(b"hipRuntimeGetVersion\0").map(|sym| *sym)?;
        let hipSetDevice = __library.get(b"hipSetDevice\0").map(|sym| *sym)?;
        let hipGetDevice = __library.get(b"hipGetDevice\0").map(|sym| *sym)?;
        let hipGetDeviceCount = __library.get(b"hipGetDeviceCount\0").map(|sym| *sym)?;
        let hipDeviceGetAttribute = __library.get(b"hipDeviceGetAttribute\0").map(|sym| *sym)?;
        let hipGetDevicePropertiesR0600 = __library.get(b"hipGetDevicePropertiesR0600\0").map(|sym| *sym)?;
        let hipGetErrorName = __library.get(b"hipGetErrorName\0").map(|sym| *sym)?;
        let hipGetErrorString = __library.get(b"hipGetErrorString\0").map(|sym| *sym)?;
        let hipStreamCreateWithFlags = __library.get(b"hipStreamCreateWithFlags\0").map(|sym| *sym)?;
        let hipStreamDestroy = __library.get(b"hipStreamDestroy\0").map(|sym| *sym)?;
        let hipStreamSynchronize = __library.get(b"hipStreamSynchronize\0").map(|sym| *sym)?;
        let hipEventCreateWithFlags = __library.get(b"hipEventCreateWithFlags\0").map(|sym| *sym)?;
        let hipEventRecord = __library.get(b"hipEventRecord\0").map(|sym| *sym)?;
        let hipEventDestroy = __library.get(b"hipEventDestroy\0").map(|sym| *sym)?;
        let hipEventSynchronize = __library.get(b"hipEventSynchronize\0").map(|sym| *sym)?;
        let hipEventElapsedTime = __library.get(b"hipEventElapsedTime\0").map(|sym| *sym)?;
        let hipMalloc = __library.get(b"hipMalloc\0").map(|sym| *sym)?;
        let hipFree = __library.get(b"hipFree\0").map(|sym| *sym)?;
        let hipMemcpyAsync = __library.get(b"hipMemcpyAsync\0").map(|sym| *sym)?;
        let hipMemsetAsync = __library.get(b"hipMemsetAsync\0").map(|sym| *sym)?;
        let hipModuleUnload = __library.get(b"hipModuleUnload\0").map(|sym| *sym)?;
        let hipModuleGetFunction = __library.get(b"hipModuleGetFunction\0").map(|sym| *sym)?;
        let hipFuncGetAttribute = __library.get(b"hipFuncGetAttribute\0").map(|sym| *sym)?;
        let hipModuleLoadData = __library.get(b"hipModuleLoadData\0").map(|sym| *sym)?;
        let hipModuleLaunchKernel = __library.get(b"hipModuleLaunchKernel\0").map(|sym| *sym)?;
        let hipModuleOccupancyMaxActiveBlocksPerMultiprocessor =
            __library.get(b"hipModuleOccupancyMaxActiveBlocksPerMultiprocessor\0").map(|sym| *sym)?;
        let hipStreamBeginCapture = __library.get(b"hipStreamBeginCapture\0").map(|sym| *sym)?;
        let hipStreamEndCapture = __library.get(b"hipStreamEndCapture\0").map(|sym| *sym)?;
        let hipStreamGetCaptureInfo_v2 = __library.get(b"hipStreamGetCaptureInfo_v2\0").map(|sym| *sym)?;
        let hipThreadExchangeStreamCaptureMode =
            __library.get(b"hipThreadExchangeStreamCaptureMode\0").map(|sym| *sym)?;
        let hipGraphDestroy = __library.get(b"hipGraphDestroy\0").map(|sym| *sym)?;
        let hipGraphInstantiateWithFlags =
            __library.get(b"hipGraphInstantiateWithFlags\0").map(|sym| *sym)?;
        let hipGraphLaunch = __library.get(b"hipGraphLaunch\0").map(|sym| *sym)?;
        let hipGraphExecDestroy = __library.get(b"hipGraphExecDestroy\0").map(|sym| *sym)?;
        let hipGraphAddChildGraphNode = __library.get(b"hipGraphAddChildGraphNode\0").map(|sym| *sym)?;
        let hipGraphExecChildGraphNodeSetParams =
            __library.get(b"hipGraphExecChildGraphNodeSetParams\0").map(|sym| *sym)?;
        let hipUserObjectCreate = __library.get(b"hipUserObjectCreate\0").map(|sym| *sym)?;
        let hipUserObjectRelease = __library.get(b"hipUserObjectRelease\0").map(|sym| *sym)?;
        let hipGraphRetainUserObject = __library.get(b"hipGraphRetainUserObject\0").map(|sym| *sym)?;
        Ok(Hip {
            __library,
            hipInit,
            hipRuntimeGetVersion,
            hipSetDevice,
            hipGetDevice,
            hipGetDeviceCount,
            hipDeviceGetAttribute,
            hipGetDevicePropertiesR0600,
            hipGetErrorName,
            hipGetErrorString,
            hipStreamCreateWithFlags,
            hipStreamDestroy,
            hipStreamSynchronize,
            hipEventCreateWithFlags,
            hipEventRecord,
            hipEventDestroy,
            hipEventSynchronize,
            hipEventElapsedTime,
            hipMalloc,
            hipFree,
            hipMemcpyAsync,
            hipMemsetAsync,
            hipModuleUnload,
            hipModuleGetFunction,
            hipFuncGetAttribute,
            hipModuleLoadData,
            hipModuleLaunchKernel,
            hipModuleOccupancyMaxActiveBlocksPerMultiprocessor,
            hipStreamBeginCapture,
            hipStreamEndCapture,
            hipStreamGetCaptureInfo_v2,
            hipThreadExchangeStreamCaptureMode,
            hipGraphDestroy,
            hipGraphInstantiateWithFlags,
            hipGraphLaunch,
            hipGraphExecDestroy,
            hipGraphAddChildGraphNode,
            hipGraphExecChildGraphNodeSetParams,
            hipUserObjectCreate,
            hipUserObjectRelease,
            hipGraphRetainUserObject,
        })
    }
    pub unsafe fn hipInit(&self, flags: ::std::os::raw::c_uint) -> hipError_t {
        (self.hipInit)(flags)
    }
    pub unsafe fn hipRuntimeGetVersion(&self, runtimeVersion: *mut ::std::os::raw::c_int) -> hipError_t {
        (self.hipRuntimeGetVersion)(runtimeVersion)
    }
    pub unsafe fn hipSetDevice(&self, deviceId: ::std::os::raw::c_int) -> hipError_t {
        (self.hipSetDevice)(deviceId)
    }
    pub unsafe fn hipGetDevice(&self, deviceId: *mut ::std::os::raw::c_int) -> hipError_t {
        (self.hipGetDevice)(deviceId)
    }
    pub unsafe fn hipGetDeviceCount(&self, count: *mut ::std::os::raw::c_int) -> hipError_t {
        (self.hipGetDeviceCount)(count)
    }
    pub unsafe fn hipDeviceGetAttribute(
        &self,
        pi: *mut ::std::os::raw::c_int,
        attr: hipDeviceAttribute_t,
        deviceId: ::std::os::raw::c_int,
    ) -> hipError_t {
        (self.hipDeviceGetAttribute)(pi, attr, deviceId)
    }
    pub unsafe fn hipGetDevicePropertiesR0600(
        &self,
        prop: *mut hipDeviceProp_tR0600,
        deviceId: ::std::os::raw::c_int,
    ) -> hipError_t {
        (self.hipGetDevicePropertiesR0600)(prop, deviceId)
    }
    pub unsafe fn hipGetErrorName(&self, hip_error: hipError_t) -> *const ::std::os::raw::c_char {
        (self.hipGetErrorName)(hip_error)
    }
    pub unsafe fn hipGetErrorString(&self, hipError: hipError_t) -> *const ::std::os::raw::c_char {
        (self.hipGetErrorString)(hipError)
    }
    pub unsafe fn hipStreamCreateWithFlags(
        &self,
        stream: *mut hipStream_t,
        flags: ::std::os::raw::c_uint,
    ) -> hipError_t {
        (self.hipStreamCreateWithFlags)(stream, flags)
    }
    pub unsafe fn hipStreamDestroy(&self, stream: hipStream_t) -> hipError_t {
        (self.hipStreamDestroy)(stream)
    }
    pub unsafe fn hipStreamSynchronize(&self, stream: hipStream_t) -> hipError_t {
        (self.hipStreamSynchronize)(stream)
    }
    pub unsafe fn hipEventCreateWithFlags(
        &self,
        event: *mut hipEvent_t,
        flags: ::std::os::raw::c_uint,
    ) -> hipError_t {
        (self.hipEventCreateWithFlags)(event, flags)
    }
    pub unsafe fn hipEventRecord(&self, event: hipEvent_t, stream: hipStream_t) -> hipError_t {
        (self.hipEventRecord)(event, stream)
    }
    pub unsafe fn hipEventDestroy(&self, event: hipEvent_t) -> hipError_t {
        (self.hipEventDestroy)(event)
    }
    pub unsafe fn hipEventSynchronize(&self, event: hipEvent_t) -> hipError_t {
        (self.hipEventSynchronize)(event)
    }
    pub unsafe fn hipEventElapsedTime(
        &self,
        ms: *mut f32,
        start: hipEvent_t,
        stop: hipEvent_t,
    ) -> hipError_t {
        (self.hipEventElapsedTime)(ms, start, stop)
    }
    pub unsafe fn hipMalloc(&self, ptr: *mut *mut ::std::os::raw::c_void, size: usize) -> hipError_t {
        (self.hipMalloc)(ptr, size)
    }
    pub unsafe fn hipFree(&self, ptr: *mut ::std::os::raw::c_void) -> hipError_t {
        (self.hipFree)(ptr)
    }
    pub unsafe fn hipMemcpyAsync(
        &self,
        dst: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        sizeBytes: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> hipError_t {
        (self.hipMemcpyAsync)(dst, src, sizeBytes, kind, stream)
    }
    pub unsafe fn hipMemsetAsync(
        &self,
        dst: *mut ::std::os::raw::c_void,
        value: ::std::os::raw::c_int,
        sizeBytes: usize,
        stream: hipStream_t,
    ) -> hipError_t {
        (self.hipMemsetAsync)(dst, value, sizeBytes, stream)
    }
    pub unsafe fn hipModuleUnload(&self, module: hipModule_t) -> hipError_t {
        (self.hipModuleUnload)(module)
    }
    pub unsafe fn hipModuleGetFunction(
        &self,
        function: *mut hipFunction_t,
        module: hipModule_t,
        kname: *const ::std::os::raw::c_char,
    ) -> hipError_t {
        (self.hipModuleGetFunction)(function, module, kname)
    }
    pub unsafe fn hipFuncGetAttribute(
        &self,
        value: *mut ::std::os::raw::c_int,
        attrib: hipFunction_attribute,
        hfunc: hipFunction_t,
    ) -> hipError_t {
        (self.hipFuncGetAttribute)(value, attrib, hfunc)
    }
    pub unsafe fn hipModuleLoadData(
        &self,
        module: *mut hipModule_t,
        image: *const ::std::os::raw::c_void,
    ) -> hipError_t {
        (self.hipModuleLoadData)(module, image)
    }
    pub unsafe fn hipModuleLaunchKernel(
        &self,
        f: hipFunction_t,
        gridDimX: ::std::os::raw::c_uint,
        gridDimY: ::std::os::raw::c_uint,
        gridDimZ: ::std::os::raw::c_uint,
        blockDimX: ::std::os::raw::c_uint,
        blockDimY: ::std::os::raw::c_uint,
        blockDimZ: ::std::os::raw::c_uint,
        sharedMemBytes: ::std::os::raw::c_uint,
        stream: hipStream_t,
        kernelParams: *mut *mut ::std::os::raw::c_void,
        extra: *mut *mut ::std::os::raw::c_void,
    ) -> hipError_t {
        (self.hipModuleLaunchKernel)(
            f,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            stream,
            kernelParams,
            extra,
        )
    }
    pub unsafe fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        &self,
        numBlocks: *mut ::std::os::raw::c_int,
        f: hipFunction_t,
        blockSize: ::std::os::raw::c_int,
        dynSharedMemPerBlk: usize,
    ) -> hipError_t {
        (self.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)(numBlocks, f, blockSize, dynSharedMemPerBlk)
    }
    pub unsafe fn hipStreamBeginCapture(
        &self,
        stream: hipStream_t,
        mode: hipStreamCaptureMode,
    ) -> hipError_t {
        (self.hipStreamBeginCapture)(stream, mode)
    }
    pub unsafe fn hipStreamEndCapture(&self, stream: hipStream_t, pGraph: *mut hipGraph_t) -> hipError_t {
        (self.hipStreamEndCapture)(stream, pGraph)
    }
    pub unsafe fn hipStreamGetCaptureInfo_v2(
        &self,
        stream: hipStream_t,
        captureStatus_out: *mut hipStreamCaptureStatus,
        id_out: *mut ::std::os::raw::c_ulonglong,
        graph_out: *mut hipGraph_t,
        dependencies_out: *mut *const hipGraphNode_t,
        numDependencies_out: *mut usize,
    ) -> hipError_t {
        (self.hipStreamGetCaptureInfo_v2)(
            stream,
            captureStatus_out,
            id_out,
            graph_out,
            dependencies_out,
            numDependencies_out,
        )
    }
    pub unsafe fn hipThreadExchangeStreamCaptureMode(&self, mode: *mut hipStreamCaptureMode) -> hipError_t {
        (self.hipThreadExchangeStreamCaptureMode)(mode)
    }
    pub unsafe fn hipGraphDestroy(&self, graph: hipGraph_t) -> hipError_t {
        (self.hipGraphDestroy)(graph)
    }
    pub unsafe fn hipGraphInstantiateWithFlags(
        &self,
        pGraphExec: *mut hipGraphExec_t,
        graph: hipGraph_t,
        flags: ::std::os::raw::c_ulonglong,
    ) -> hipError_t {
        (self.hipGraphInstantiateWithFlags)(pGraphExec, graph, flags)
    }
    pub unsafe fn hipGraphLaunch(&self, graphExec: hipGraphExec_t, stream: hipStream_t) -> hipError_t {
        (self.hipGraphLaunch)(graphExec, stream)
    }
    pub unsafe fn hipGraphExecDestroy(&self, graphExec: hipGraphExec_t) -> hipError_t {
        (self.hipGraphExecDestroy)(graphExec)
    }
    pub unsafe fn hipGraphAddChildGraphNode(
        &self,
        pGraphNode: *mut hipGraphNode_t,
        graph: hipGraph_t,
        pDependencies: *const hipGraphNode_t,
        numDependencies: usize,
        childGraph: hipGraph_t,
    ) -> hipError_t {
        (self.hipGraphAddChildGraphNode)(pGraphNode, graph, pDependencies, numDependencies, childGraph)
    }
    pub unsafe fn hipGraphExecChildGraphNodeSetParams(
        &self,
        hGraphExec: hipGraphExec_t,
        node: hipGraphNode_t,
        childGraph: hipGraph_t,
    ) -> hipError_t {
        (self.hipGraphExecChildGraphNodeSetParams)(hGraphExec, node, childGraph)
    }
    pub unsafe fn hipUserObjectCreate(
        &self,
        object_out: *mut hipUserObject_t,
        ptr: *mut ::std::os::raw::c_void,
        destroy: hipHostFn_t,
        initialRefcount: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
    ) -> hipError_t {
        (self.hipUserObjectCreate)(object_out, ptr, destroy, initialRefcount, flags)
    }
    pub unsafe fn hipUserObjectRelease(
        &self,
        object: hipUserObject_t,
        count: ::std::os::raw::c_uint,
    ) -> hipError_t {
        (self.hipUserObjectRelease)(object, count)
    }
    pub unsafe fn hipGraphRetainUserObject(
        &self,
        graph: hipGraph_t,
        object: hipUserObject_t,
        count: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
    ) -> hipError_t {
        (self.hipGraphRetainUserObject)(graph, object, count, flags)
    }
}
