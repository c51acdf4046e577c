"""
The names of BookKeeper's own keys, so that its files can be read as they are.

Knows: every key of a 4.17 or 4.18 server's and client's configuration, and what an operator should know about some that
have no meaning here.
Does not know: which of them quire gives a meaning; the options themselves say that (see `properties`).
"""

# SPDX-License-Identifier: Apache-2.0

# Of a bookie, its storage, its metrics and AutoRecovery.
SERVER_NAMES = """
    advertisedAddress allocatorExitOnOutOfMemory allocatorLeakDetectionPolicy allocatorOutOfMemoryPolicy
    allocatorPoolingConcurrency allocatorPoolingPolicy allowEphemeralPorts allowLoopback
    allowMultipleDirsUnderSameDiskPartition allowShadedLedgerManagerFactoryClass allowStorageExpansion
    auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec auditorLedgerVerificationPercentage
    auditorMaxNumberOfConcurrentOpenLedgerOperations auditorPeriodicBookieCheckInterval auditorPeriodicCheckInterval
    auditorPeriodicPlacementPolicyCheckInterval auditorReplicasCheckInterval authorizedRoles autoRecoveryDaemonEnabled
    bookieAddressResolverEnabled bookieAuthProviderFactoryClass bookieDeathWatchInterval bookieId bookiePort
    byteBufAllocatorSizeInitial byteBufAllocatorSizeMax byteBufAllocatorSizeMin closeChannelOnResponseTimeout
    codahaleStatsCSVEndpoint codahaleStatsGraphiteEndpoint codahaleStatsJmxEndpoint
    codahaleStatsOutputFrequencySeconds codahaleStatsPrefix codahaleStatsSlf4jEndpoint
    compactionMaxOutstandingRequests compactionRate compactionRateByBytes compactionRateByEntries
    dataIntegrityChecking dataIntegrityStampMissingCookies dbStorage_directIOEntryLogger
    dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds dbStorage_directIOEntryLoggerReadBufferSizeMB
    dbStorage_directIOEntryLoggerTotalReadBufferSizeMB dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB
    dbStorage_maxThrottleTimeMs dbStorage_readAheadCacheBatchBytesSize dbStorage_readAheadCacheBatchSize
    dbStorage_readAheadCacheMaxSizeMb dbStorage_rocksDB_blockCacheSize dbStorage_rocksDB_blockSize
    dbStorage_rocksDB_bloomFilterBitsPerKey dbStorage_rocksDB_checksum_type dbStorage_rocksDB_format_version
    dbStorage_rocksDB_logLevel dbStorage_rocksDB_logPath dbStorage_rocksDB_lz4CompressionEnabled
    dbStorage_rocksDB_maxSizeInLevel1MB dbStorage_rocksDB_numFilesInLevel0 dbStorage_rocksDB_numLevels
    dbStorage_rocksDB_sstSizeInMB dbStorage_rocksDB_writeBufferSizeMB dbStorage_writeCacheMaxSizeMb defaultRocksdbConf
    desiredNumZonesPerWriteQuorum digestType disableServerSocketBind diskCheckInterval diskUsageLwmThreshold
    diskUsageThreshold diskUsageWarnThreshold enableBusyWait enableDigestTypeAutodetection enableHealthCheck
    enableLocalTransport enableStatistics enableTaskExecutionStats enforceMinNumFaultDomainsForWrite
    enforceMinNumRacksPerWriteQuorum enforceStrictZoneawarePlacement ensemblePlacementPolicy entryFormatterClass
    entryLocationCompactionInterval entryLocationRocksdbConf entryLogFilePreallocationEnabled
    entryLogPerLedgerCounterLimitsMultFactor entryLogPerLedgerEnabled entrylogMapAccessExpiryTimeInSeconds
    exposeDefaultJVMMetrics extraServerComponents fileInfoCacheInitialCapacity fileInfoFormatVersionToWrite
    fileInfoMaxIdleTime flushEntrylogBytes flushInterval forceAllowCompaction forceReadOnlyBookie
    gcEntryLogMetadataCacheEnabled gcEntryLogMetadataCachePath gcMetadataOpRateLimit
    gcOverreplicatedLedgerMaxConcurrentRequests gcOverreplicatedLedgerWaitTime gcWaitTime httpServerClass
    httpServerEnabled httpServerHost httpServerKeyStorePassword httpServerKeyStorePath httpServerPort
    httpServerTlsEnable httpServerTrustStorePassword httpServerTrustStorePath
    ignoreExtraServerComponentsStartupFailures ignoreLocalNodeInPlacementPolicy inFlightReadEntryNumInLedgerChecker
    indexDirectories isForceGCAllowWhenNoSpace isThrottleByBytes journalAdaptiveGroupWrites journalAlignmentSize
    journalBufferedEntriesThreshold journalBufferedWritesThreshold journalChannelProvider journalDirectories
    journalDirectory journalFlushWhenQueueEmpty journalFormatVersionToWrite journalMaxBackups journalMaxGroupWaitMSec
    journalMaxMemorySizeMb journalMaxSizeMB journalPageCacheFlushIntervalMSec journalPreAllocSizeMB journalQueueSize
    journalRemoveFromPageCache journalReuseFiles journalSegmentsPreallocation journalSyncData journalWriteBufferSizeKB
    journalWriteData ledgerDirectories ledgerIdFormatterClass ledgerManagerFactoryClass
    ledgerManagerFactoryDisableClassCheck ledgerManagerType ledgerMetadataRocksdbConf ledgerMetadataVersion
    ledgerStorageClass limitStatsLogging listeningInterface localConsistencyCheckOnStartup localScrubInterval
    localScrubRateLimit lockReleaseOfFailedLedgerGracePeriod logSizeLimit lostBookieRecoveryDelay
    majorCompactionInterval majorCompactionMaxTimeMillis majorCompactionThreshold maxAddsInProgressLimit
    maxBatchReadSize maxOperationNumbersInSingleRocksdbWriteBatch maxPendingAddRequestsPerThread
    maxPendingReadRequestsPerThread maxReadsInProgressLimit maximumNumberOfActiveEntryLogs metadataServiceUri
    metastoreImplClass metastoreMaxEntriesPerScan minNumRacksPerWriteQuorum minNumZonesPerWriteQuorum
    minUsableSizeForEntryLogCreation minUsableSizeForHighPriorityWrites minUsableSizeForIndexFileCreation
    minorCompactionInterval minorCompactionMaxTimeMillis minorCompactionThreshold nettyMaxFrameSizeBytes
    networkTopologyScriptFileName networkTopologyScriptNumberArgs numAddWorkerThreads numHighPriorityWorkerThreads
    numJournalCallbackThreads numLongPollWorkerThreads numOfMemtableFlushThreads numReadWorkerThreads openFileLimit
    openLedgerRereplicationGracePeriod pageLimit pageSize permittedStartupUsers persistBookieStatusEnabled
    preserveMdcForTaskExecution prometheusStatsHttpAddress prometheusStatsHttpEnable prometheusStatsHttpPort
    prometheusStatsLatencyRolloverSeconds readBufferSizeBytes readOnlyModeEnabled readOnlyModeOnAnyDiskFullEnabled
    readWorkerThreadsThrottlingEnabled registrationManagerClass reorderReadSequenceEnabled
    repairedPlacementPolicyNotAdheringBookieEnabled replicationRateByBytes reppDnsResolverClass requestTimerNumTicks
    requestTimerTickDurationMs rereplicationEntryBatchSize rwRereplicateBackoffMs sanityCheckMetricsEnabled
    saslJaasAuditorSectionName saslJaasBookieSectionName saslJaasClientAllowedIds saslJaasClientSectionName
    serverNumAcceptorThreads serverNumIOThreads serverSockKeepalive serverTcpKeepCnt serverTcpKeepIdle
    serverTcpKeepIntvl serverTcpLinger serverTcpNoDelay serverWriteBufferHighWaterMark serverWriteBufferLowWaterMark
    shadedLedgerManagerFactoryClassPrefix skipListArenaChunkSize skipListArenaMaxAllocSize skipListSizeLimit
    skipReplayJournalInvalidRecord sortedLedgerStorageEnabled statsProviderClass stickyReadSEnabled
    storeSystemTimeAsLedgerCreationTime storeSystemTimeAsLedgerUnderreplicatedMarkTime throttle
    tlsCertFilesRefreshDurationSeconds tlsCertificatePath tlsClientAuthentication tlsEnabledCipherSuites
    tlsEnabledProtocols tlsKeyStore tlsKeyStorePasswordPath tlsKeyStoreType tlsProvider tlsProviderFactoryClass
    tlsTrustStore tlsTrustStorePasswordPath tlsTrustStoreType underreplicatedLedgerRecoveryGracePeriod
    useHostNameAsBookieID useShortHostName useTargetEntryLogSizeForGc useTransactionalCompaction verifyMetadataOnGC
    waitTimeoutOnResponseBackpressureMs writeBufferSizeBytes zkEnableSecurity zkLedgersRootPath
    zkReplicationTaskRateLimit zkRequestRateLimit zkRetryBackoffMaxMs zkRetryBackoffMaxRetries zkRetryBackoffStartMs
    zkServers zkTimeout
"""
SERVER = frozenset(SERVER_NAMES.split())

# Of a client; BookKeeper reads them from the server's file for AutoRecovery.
CLIENT_NAMES = """
    addEntryQuorumTimeoutSec addEntryTimeoutSec batchReadEnabled bookieConnectionErrorQuarantineEnabled
    bookieErrorThresholdPerInterval bookieFailureHistoryExpirationMSec bookieHealthCheckEnabled
    bookieHealthCheckIntervalSeconds bookieMaxMultipleForWeightBasedPlacement bookieQuarantineRatio
    bookieQuarantineTimeSeconds clientAuthProviderFactoryClass clientConnectBookieUnavailableLogThrottling
    clientConnectTimeoutMillis clientKeyStore clientKeyStorePasswordPath clientKeyStoreType clientReceiveBufferSize
    clientRole clientSendBufferSize clientSockKeepalive clientTcpNoDelay clientTcpUserTimeoutMillis clientTrustStore
    clientTrustStorePasswordPath clientTrustStoreType clientWriteBufferHighWaterMark clientWriteBufferLowWaterMark
    delayEnsembleChange disableEnsembleChangeFeatureName diskWeightBasedPlacementEnabled enableBookieAddressTracking
    enableBookieFailureTracking enableParallelRecoveryRead ensemblePlacementPolicyOrderSlowBookies explicitLacInterval
    firstSpeculativeReadLACTimeout firstSpeculativeReadTimeout getBookieInfoIntervalSeconds
    getBookieInfoRetryIntervalSeconds getBookieInfoTimeoutSecs maxNumEnsembleChanges maxSpeculativeReadLACTimeout
    maxSpeculativeReadTimeout nettyUsePooledBuffers networkTopologyStabilizePeriodSeconds numChannelsPerBookie
    numIOThreads numWorkerThreads opportunisticStriping passwd pcbcTimeoutTimerNumTicks pcbcTimeoutTimerTickDurationMs
    readEntryTimeoutSec readReorderThresholdPendingRequests readTimeout recoveryBatchReadEnabled recoveryReadBatchSize
    registrationClientClass reppDisallowBookiePlacementInRegionFeatureName reppDisableDurabilityFeatureName
    reppEnableDurabilityEnforcementInReplace reppEnableValidation reppMinimumRegionsForDurability reppRegionsToWrite
    speculativeReadLACTimeoutBackoffMultiplier speculativeReadTimeout speculativeReadTimeoutBackoffMultiplier
    startTLSTimeoutSecs taskExecutionWarnTimeMicros tcpKeepCnt tcpKeepIdle tcpKeepIntvl timeoutMonitorIntervalSec
    timeoutTaskIntervalMillis timeoutTimerNumTicks timeoutTimerTickDurationMs tlsHostnameVerificationEnabled
    useHostnameResolveLocalNodePlacementPolicy useV2WireProtocol waitTimeoutOnBackpressureMs
"""
CLIENT = frozenset(CLIENT_NAMES.split())

# Whole families that live in the same file: table service, distributed log, JVM switches.
FAMILIES = ("dlog.", "storage.", "storageserver.", "org.apache.bookkeeper.", "statsProvider.")

# Variables of BookKeeper's container images that are for its scripts, not keys.
SCRIPT_VARIABLE_NAMES = """
    CLUSTER_ROOT_PATH DATA_DIR DIR HOME LOCAL_CONTAINER_DATA_DIR LOCAL_DATA_DIR NUM_STORAGE_CONTAINERS
    STREAM_STORAGE_ROOT_PATH
    USER VERSION
    dlogRootPath METADATA_SERVICE_URI LOG_CONF OPTS CONF
"""
SCRIPT_VARIABLES = frozenset(SCRIPT_VARIABLE_NAMES.split())

# What to say beside "has no meaning here".
ADVICE = {
    "journalMaxSizeMB": "journal segments are reused; their size is journalSegmentSizeMB",
    "journalMaxBackups": "journal segments are reused, none is kept as a backup",
    "ledgerStorageClass": "there is one storage; the directories of each of BookKeeper's are read",
    "httpServerEnabled": (
        "the one HTTP port is always on (prometheusStatsHttpAddress, prometheusStatsHttpPort), and opens its paths to "
        "who has a token (adminTokenFile)"
    ),
    "httpServerKeyStorePassword": "the key of the HTTP port is read without a password (httpServerKeyStorePath)",
    "httpServerTrustStorePassword": "PEM files of authorities have no password",
    "statsProviderClass": "/metrics is always on, in Prometheus text, for who has a token (metricsTokenFile)",
    "readOnlyModeEnabled": "a bookie with a full disk is always read-only, never stopped",
    "tlsProvider": "it is OpenSSL here, whatever this says",
    "tlsTrustStorePasswordPath": "PEM files of authorities have no password",
    "clientTrustStorePasswordPath": "PEM files of authorities have no password",
    "maxPendingAddRequestsPerThread": "adds wait instead of being refused; see connectionPendingSizeMB",
}

# Security that is asked for and not served stops the start: key -> what would not be so.
UNSERVED_SECURITY = {
    "permittedStartupUsers": "any user could start it",
}
NOT_ASKED = frozenset(
    {
        "",
        "false",
        "org.apache.bookkeeper.auth.authproviderfactoryfactory$authenticationdisabledauthproviderfactory",
    }
)  # values of those keys, in lower case, that ask for nothing
