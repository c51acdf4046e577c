"""
How a key of a configuration is treated here: honoured; differs, for something else happens than its value asks for; or
ignored, for there is nothing that it could mean.  And the one line that says so when a process starts.

Knows: what happens instead, for every key of Apache BookKeeper's that no option serves, and the values that ask for
just that; where an option that has Apache's key does something else; the variables of Apache's start scripts.
Does not know: files, or what an option does (`properties`).

Safety: no key changes its meaning in silence.  A key without an option has an entry here, and `None` for a key that is
not known is for the caller to refuse.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from quire.conf.known_keys import CLIENT, SERVER

# SPDX-License-Identifier: Apache-2.0

Kind = Literal["honoured", "differs", "ignored", "refused"]


class Treatment(NamedTuple):
    """The treatment of one key, and why unless it is simply honoured."""

    kind: Kind
    why: str = ""


class Instead(NamedTuple):
    """A thing that happens whatever a key says, and the values that ask for it, in lower case."""

    why: str
    holds: frozenset[str]


# What happens instead, and the keys that it is said of; `key=value|value`: these values ask for what happens.
INSTEAD_NAMES = {
    "one thread serves connections, few others the disks: there are no pools to size": """
        enableBusyWait=false enableTaskExecutionStats=false numAddWorkerThreads numHighPriorityWorkerThreads
        numIOThreads numJournalCallbackThreads numLongPollWorkerThreads numOfMemtableFlushThreads numReadWorkerThreads
        numWorkerThreads preserveMdcForTaskExecution=false serverNumAcceptorThreads serverNumIOThreads
        taskExecutionWarnTimeMicros""",
    "there is no Java machine whose memory it could size": """
        allocatorExitOnOutOfMemory=false allocatorLeakDetectionPolicy=Disabled allocatorOutOfMemoryPolicy
        allocatorPoolingConcurrency allocatorPoolingPolicy byteBufAllocatorSizeInitial byteBufAllocatorSizeMax
        byteBufAllocatorSizeMin exposeDefaultJVMMetrics=false nettyUsePooledBuffers""",
    "no Java class is loaded: metadataServiceUri says which store it is": """
        allowShadedLedgerManagerFactoryClass=false ledgerManagerFactoryDisableClassCheck=false metastoreImplClass
        metastoreMaxEntriesPerScan registrationClientClass registrationManagerClass
        shadedLedgerManagerFactoryClassPrefix""",
    "connections have it always": """
        clientSockKeepalive=true clientTcpNoDelay=true serverSockKeepalive=true serverTcpNoDelay=true""",
    "the kernel's own sizes hold, and times that are built in": """
        clientReceiveBufferSize clientSendBufferSize clientWriteBufferHighWaterMark clientWriteBufferLowWaterMark
        serverTcpKeepCnt serverTcpKeepIdle serverTcpKeepIntvl serverTcpLinger=0|-1 serverWriteBufferHighWaterMark
        serverWriteBufferLowWaterMark tcpKeepCnt tcpKeepIdle tcpKeepIntvl""",
    "timers have no wheels, and are exact": """
        pcbcTimeoutTimerNumTicks pcbcTimeoutTimerTickDurationMs requestTimerNumTicks requestTimerTickDurationMs
        timeoutMonitorIntervalSec timeoutTaskIntervalMillis timeoutTimerNumTicks timeoutTimerTickDurationMs""",
    "clients come over TCP": "disableServerSocketBind=false enableLocalTransport=false",
    "bookiePort=0 takes a free port": "allowEphemeralPorts=true",
    "directories may share a disk": "allowMultipleDirsUnderSameDiskPartition=true",
    "a bookie that can't go on ends its process at once": "bookieDeathWatchInterval",
    "nothing else is loaded into a bookie": "extraServerComponents ignoreExtraServerComponentsStartupFailures",
    "journal segments are preallocated and reused, none is kept as a backup; their size is journalSegmentSizeMB": """
        journalMaxBackups journalMaxSizeMB journalPreAllocSizeMB journalReuseFiles=true
        journalSegmentsPreallocation=true""",
    "files have one format; `quire bookie export` writes Apache's": """
        fileInfoFormatVersionToWrite journalAlignmentSize journalFormatVersionToWrite""",
    "metadata of new ledgers has version 3": "ledgerMetadataVersion=3|-1",
    "entries that wait are always synced together": "journalAdaptiveGroupWrites=true",
    "a group waits for journalMaxGroupWaitMSec, also when nothing else waits; 0 is no wait": """
        journalFlushWhenQueueEmpty=false""",
    "a group is bounded by bytes: journalBufferedWritesThreshold": "journalBufferedEntriesThreshold=0",
    "the journal is written past the page cache, each group at once": """
        journalPageCacheFlushIntervalMSec journalRemoveFromPageCache=true journalWriteBufferSizeKB""",
    "there is one kind of journal": "journalChannelProvider",
    "a record that can't be replayed stops the start": "skipReplayJournalInvalidRecord=false",
    "what waits is bounded by bytes, and waits instead of being refused: journalMaxMemorySizeMb, "
    "connectionPendingSizeMB, pendingSizeMB": """
        journalQueueSize maxAddsInProgressLimit maxPendingAddRequestsPerThread""",
    "reads are bounded by maxPendingReadRequestsPerThread, their answers by answersSizeMB": """
        closeChannelOnResponseTimeout maxReadsInProgressLimit readWorkerThreadsThrottlingEnabled=true
        waitTimeoutOnResponseBackpressureMs""",
    "there is one storage, which reads the directories of each of Apache's; its sizes are "
    "dbStorage_writeCacheMaxSizeMb and dbStorage_readAheadCacheMaxSizeMb": """
        dbStorage_directIOEntryLogger=false dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds
        dbStorage_directIOEntryLoggerReadBufferSizeMB dbStorage_directIOEntryLoggerTotalReadBufferSizeMB
        dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB dbStorage_readAheadCacheBatchBytesSize
        dbStorage_readAheadCacheBatchSize dbStorage_rocksDB_blockCacheSize dbStorage_rocksDB_blockSize
        dbStorage_rocksDB_bloomFilterBitsPerKey dbStorage_rocksDB_checksum_type dbStorage_rocksDB_format_version
        dbStorage_rocksDB_logLevel dbStorage_rocksDB_logPath dbStorage_rocksDB_lz4CompressionEnabled
        dbStorage_rocksDB_maxSizeInLevel1MB dbStorage_rocksDB_numFilesInLevel0 dbStorage_rocksDB_numLevels
        dbStorage_rocksDB_sstSizeInMB dbStorage_rocksDB_writeBufferSizeMB defaultRocksdbConf
        entryLocationRocksdbConf entryLogFilePreallocationEnabled
        entryLogPerLedgerCounterLimitsMultFactor entryLogPerLedgerEnabled=false entrylogMapAccessExpiryTimeInSeconds
        fileInfoCacheInitialCapacity fileInfoMaxIdleTime flushEntrylogBytes ledgerMetadataRocksdbConf ledgerStorageClass
        maxOperationNumbersInSingleRocksdbWriteBatch maximumNumberOfActiveEntryLogs openFileLimit pageLimit pageSize
        readBufferSizeBytes rocksDBDeleteEntriesBatchSize skipListArenaChunkSize skipListArenaMaxAllocSize
        skipListSizeLimit sortedLedgerStorageEnabled writeBufferSizeBytes""",
    "RocksDB compacts the index by itself, and PUT /api/v1/bookie/entry_location_compact asks for it": """
        entryLocationCompactionInterval""",
    "adds wait while the write cache is full": "dbStorage_maxThrottleTimeMs",
    "the index knows what is in each entry log, and how much of it lives": """
        gcEntryLogMetadataCacheEnabled=false gcEntryLogMetadataCachePath useTargetEntryLogSizeForGc""",
    "compaction moves a bounded part at a time": "compactionMaxOutstandingRequests",
    "a crash leaves the old log whole or the new one": "useTransactionalCompaction=true",
    "a ledger that seems deleted is read again before it goes": "verifyMetadataOnGC=true",
    "bounded by gcMetadataOpRateLimit": "gcOverreplicatedLedgerMaxConcurrentRequests",
    "what a start and a flush need is looked at when they need it": """
        minUsableSizeForEntryLogCreation minUsableSizeForIndexFileCreation""",
    "a bookie with a full disk is always read-only, never stopped": "readOnlyModeEnabled=true",
    "a bookie is read-only when one of its disks is full": "readOnlyModeOnAnyDiskFullEnabled=true",
    "`quire bookie check` looks at a stopped bookie, auditorPeriodicScrubInterval at all copies": """
        localConsistencyCheckOnStartup=false localScrubInterval=0 localScrubRateLimit""",
    "`quire bookie start --restore` copies what a bookie lost": """
        dataIntegrityChecking=false dataIntegrityStampMissingCookies=false""",
    "commands print ids in decimal and entries as --raw or --hex": "entryFormatterClass ledgerIdFormatterClass",
    "a store that gives no answer is asked again, for any time, and never by more than what waits": """
        zkRequestRateLimit=0 zkRetryBackoffMaxMs zkRetryBackoffMaxRetries zkRetryBackoffStartMs""",
    "there is one HTTP server": "httpServerClass",
    "the key of the HTTP port is read without a password: httpServerKeyStorePath": "httpServerKeyStorePassword",
    "PEM files of authorities have no password": """
        clientTrustStorePasswordPath httpServerTrustStorePassword tlsTrustStorePasswordPath""",
    "it is OpenSSL": "tlsProvider=OpenSSL",
    "metrics are always there, in Prometheus text at /metrics": """
        enableStatistics=true prometheusStatsHttpEnable=true
        statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider""",
    "metrics are in Prometheus text only": """
        statsExport=false statsHttpPort
        codahaleStatsCSVEndpoint codahaleStatsGraphiteEndpoint codahaleStatsJmxEndpoint
        codahaleStatsOutputFrequencySeconds codahaleStatsPrefix codahaleStatsSlf4jEndpoint""",
    "quantiles are of the last minute or two": "prometheusStatsLatencyRolloverSeconds=60",
    "no metric is left out because there are many": "limitStatsLogging=false",
    "auditorLedgersPerSecond bounds the auditor": """
        auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec auditorMaxNumberOfConcurrentOpenLedgerOperations""",
    "copies are made in batches by bytes: repairLedgersAtOnce and replicationRateByBytes bound them": """
        inFlightReadEntryNumInLedgerChecker rereplicationEntryBatchSize""",
    "`quire underreplicated list` says since when": "underreplicatedLedgerRecoveryGracePeriod",
    "each ledger's metadata has its digest and password; one of format 1 has neither, and is read with the password "
    "that a reader gives, but not repaired": """
        digestType enableDigestTypeAutodetection=true passwd""",
    "the time of its creation is in a ledger's metadata": "storeSystemTimeAsLedgerCreationTime=true",
    "bookies are found by their ids": "bookieAddressResolverEnabled=true enableBookieAddressTracking=true",
    "there are no switches of features: a key of its own turns each off": """
        disableEnsembleChangeFeatureName reppDisableDurabilityFeatureName reppDisallowBookiePlacementInRegionFeatureName
        reppEnableValidation""",
    "localPlace says where a client is": """
        ignoreLocalNodeInPlacementPolicy useHostnameResolveLocalNodePlacementPolicy""",
    "bookies that failed lately are chosen and asked last: bookieFailureHistoryExpirationMSec": """
        bookieConnectionErrorQuarantineEnabled enableBookieFailureTracking=true enableHealthCheck
        ensemblePlacementPolicyOrderSlowBookies networkTopologyStabilizePeriodSeconds""",
    "a client has one connection to each bookie": "numChannelsPerBookie=1",
    "appends wait by the writer's window: writerWindowEntries, writerWindowBytes": """
        throttle waitTimeoutOnBackpressureMs""",
    "readEntryTimeoutSec says how long a read may take": "readTimeout",
    "a recovery reads as many entries at once as a batch has": """
        enableParallelRecoveryRead recoveryBatchReadEnabled recoveryReadBatchSize""",
    "clientConnectTimeoutMillis is the deadline for that, too": "startTLSTimeoutSecs",
    "that a bookie can't be reached is one warning for each reason": "clientConnectBookieUnavailableLogThrottling",
    "getBookieInfoIntervalSeconds is the one of its times": """
        getBookieInfoRetryIntervalSeconds getBookieInfoTimeoutSecs""",
}


def _instead() -> dict[str, Instead]:
    found = {}
    for why, names in INSTEAD_NAMES.items():
        for name in names.split():
            key, _, holds = name.partition("=")
            found[key] = Instead(why, frozenset(holds.lower().split("|")) if holds else frozenset())
    return found


INSTEAD = _instead()

# Whole families that live in the same file: table service, distributed log, JVM switches.
FAMILIES = {
    "dlog.": "there is no table service",
    "storage.": "there is no table service",
    "storageserver.": "there is no table service",
    "org.apache.bookkeeper.": "there is no Java machine to take its properties",
    "statsProvider.": "metrics are in Prometheus text only",
}

# Those of start scripts and container images of BookKeeper and Pulsar, and what goes with a name in capitals where keys
# may be: no key is in capitals, but variables of who runs containers are.
SCRIPTS = re.compile(r"(?:BK|PULSAR_PREFIX)_(?:[A-Z][A-Z0-9_]*|dlogRootPath)")
OF_JAVA = "EXTRA_CLASSPATH EXTRA_OPTS GC LOG_CONF LOG_DIR MEM PID_DIR STOP_TIMEOUT"
OF_BOOKIE = """
    CONF GC_LOGGING_OPTS GC_OPTS LOG_FILE MAX_DIRECT_MEMORY MAX_HEAP_MEMORY MEM_OPTS MIN_HEAP_MEMORY PERF_OPTS
    ROOT_LOG_APPENDER ROOT_LOG_LEVEL
"""
SCRIPT_NAMES = frozenset(
    [f"{start}_{name}" for start in ("BOOKIE", "PULSAR") for name in OF_JAVA.split()]
    + [f"BOOKIE_{name}" for name in OF_BOOKIE.split()]
)
COMPACTION_BY_ENTRIES = "compactionRateByEntries", "compactionRate"
SCRIPT_WHY = "a variable of Apache's scripts: there is no Java machine, and `quire bookie start` has options"


def of_script(variable: str) -> bool:
    """True if a variable of the environment is for Apache's scripts."""
    return variable in SCRIPT_NAMES or SCRIPTS.fullmatch(variable) is not None


def unserved(key: str, given: Mapping[str, str]) -> Treatment | None:
    """
    The treatment of a key that no option of the process has; None for one that nobody knows.  `given`: the values of
    all keys that are not blank.
    """
    if of_script(key):
        return Treatment("ignored", SCRIPT_WHY)
    family = next((why for start, why in FAMILIES.items() if key.startswith(start)), None)
    instead = INSTEAD.get(key)
    if family is None and instead is None and key not in SERVER | CLIENT:
        return None
    if key not in given:
        return Treatment("honoured", "blank: nothing is asked for")
    if instead is None:
        return Treatment("ignored", family or "it is of another process")
    if given[key].lower() in instead.holds:
        why = beside(key, given)
        return Treatment("differs", why) if why else Treatment("honoured", instead.why)
    return Treatment("differs" if instead.holds else "ignored", instead.why)


def served(key: str, given: Mapping[str, str]) -> Treatment:
    """The treatment of a key that an option has."""
    if key not in given:
        return Treatment("honoured", "blank: the default")
    why = beside(key, given)
    return Treatment("differs", why) if why else Treatment("honoured")


def beside(key: str, given: Mapping[str, str]) -> str:
    """Names what a key means here and not in BookKeeper, beside the others that are there; mostly nothing."""
    on_its_own = given.get("httpServerEnabled", "").lower() != "true"
    value = given[key].lower()
    if key == "httpServerEnabled" and value == "false":
        return "there is one HTTP port, prometheusStatsHttpPort, and all paths but health need a token there"
    if key == "statsProviderClass" and on_its_own and "prometheusStatsHttpAddress" not in given:
        port = "at prometheusStatsHttpPort" if "prometheusStatsHttpPort" in given else "at a free port"
        return f"/metrics is {port} of 127.0.0.1 alone: prometheusStatsHttpAddress=0.0.0.0 opens it to other machines"
    if key == "maxPendingReadRequestsPerThread":
        return "of the whole bookie: reads have no threads of their own"
    if key == "isThrottleByBytes" and value == "false" and given.keys().isdisjoint(COMPACTION_BY_ENTRIES):
        return "without compactionRateByEntries the limit is compactionRateByBytes"
    return ""


def summary(treated: Iterable[tuple[str, str, Treatment]]) -> str | None:
    """The line for the log, from keys, values as they may be shown and treatments; None where all are honoured."""
    honoured, differing, ignored = 0, [], dict[str, list[str]]()
    for key, shown, (kind, why) in treated:
        if kind == "honoured":
            honoured += 1
        elif kind == "differs":
            differing.append(f"{key}={shown} ({why})")
        else:
            ignored.setdefault(why, []).append(key)
    parts = []
    if differing:
        parts.append(f"{len(differing)} differing: {'; '.join(differing)}")
    if ignored:
        texts = [f"{', '.join(keys)} ({why})" for why, keys in ignored.items()]
        parts.append(f"{sum(map(len, ignored.values()))} ignored: {'; '.join(texts)}")
    if not parts:
        return None
    return ". ".join([f"keys of the configuration: {honoured} honoured", *parts, "`quire conf check FILE` has each"])
