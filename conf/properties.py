"""
Reading Java-properties files with BookKeeper's key names into options.

Knows: the file format, `BK_<key>` overrides from the environment, which key is which field, and what to say about the
rest: a BookKeeper key that means nothing here gives one warning, an unknown key is refused with the nearest one named;
every key of a 4.17 or 4.18 server's and client's configuration, and what an operator should know about some that have
no meaning here.
Does not know: what an option does.

Order of strength: the environment, then the file, then the default.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from quire.conf.options import Key, file_value, key_of, range_text

# SPDX-License-Identifier: Apache-2.0

M = TypeVar("M", bound=BaseModel)

ENVIRONMENT_PREFIX = "BK_"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"
# Together they replace metadataServiceUri where that is missing (metadata-rules.md 1.1).
ZK_SERVERS, ZK_ROOT, URI = "zkServers", "zkLedgersRootPath", "metadataServiceUri"
LAYOUTS = {
    "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory": "hierarchical",
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory": "longhierarchical",
    "org.apache.bookkeeper.meta.FlatLedgerManagerFactory": "flat",
}

NUMBER = re.compile("-?[0-9]{1,1000}")


class ConfigurationError(ValueError):
    """A configuration that can't be used.  Names the file and line (or variable), the key and what is allowed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """One `key=value` and where it was found, as "file:line" or "environment variable BK_…"."""

    key: str
    value: str = dataclasses.field(repr=False)  # a secret, maybe
    where: str

    @property
    def shown(self) -> str:
        """The value for messages: a password's stays unsaid."""
        name = self.key.lower()
        secret = ("password" in name or "passwd" in name) and not name.endswith("path")
        return "(hidden)" if secret else self.value


def logical_lines(text: str) -> list[tuple[int, str]]:
    """(number of its first line from 1 on, line with its continuations joined), comments and blank lines left out."""
    found: list[tuple[int, str]] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        start, line = at, lines[at].lstrip(BLANKS)
        at += 1
        if not line or line[0] in "#!":
            continue
        parts = []
        while (len(line) - len(line.rstrip("\\"))) % 2 and at < len(lines):
            parts.append(line[:-1])
            line = lines[at].lstrip(BLANKS)
            at += 1
        found.append((start + 1, "".join([*parts, line])))
    return found


def unescaped(text: str, where: str) -> str:
    """Backslash escapes undone; `ConfigurationError` for a broken \\u one."""
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter != "\\" or at == len(text):
            if letter != "\\":
                out.append(letter)
            continue
        letter = text[at]
        at += 1
        if letter == "u":
            digits = text[at : at + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigurationError(f"{where}: \\u{digits} is not a character") from None
            at += 4
        else:
            out.append(ESCAPES.get(letter, letter))
    return "".join(out)


def parse(text: str, source: str) -> list[Property]:
    """The properties of a file's text in order; `source` is its name for messages."""
    found = []
    for number, line in logical_lines(text):
        where = f"{source}:{number}"
        end = 0
        while end < len(line) and line[end] not in "=:" + BLANKS:
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(BLANKS)
        found.append(Property(unescaped(line[:end], where), unescaped(rest, where).strip(), where))
    return found


def read(path: str) -> list[Property]:
    """The properties of a file; `ConfigurationError` when it can't be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as failure:
        raise ConfigurationError(f"{path}: {failure.strerror or failure}") from failure
    try:
        return parse(data.decode("utf-8"), path)
    except UnicodeDecodeError:
        return parse(data.decode("latin-1"), path)  # what Java reads


def overrides(environment: Mapping[str, str]) -> list[Property]:
    """The `BK_<key>` variables, ordered by name; those of BookKeeper's container scripts are left out."""
    return [
        Property(name.removeprefix(ENVIRONMENT_PREFIX), value.strip(), f"environment variable {name}")
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX) and name.removeprefix(ENVIRONMENT_PREFIX) not in SCRIPT_VARIABLES
    ]


def settled(found: Sequence[Property]) -> dict[str, Property]:
    """One property per key.  The environment wins; two values in a file are refused, for readers differ on them."""
    chosen: dict[str, Property] = {}
    for item in found:
        before = chosen.get(item.key)
        from_file = not item.where.startswith("environment")
        if before is not None and from_file and before.value != item.value:
            raise ConfigurationError(
                f"{item.where}: {item.key} is set again, to {item.shown!r}; {before.where} says {before.shown!r}"
            )
        chosen[item.key] = item
    return chosen


def metadata_uri(chosen: Mapping[str, Property]) -> Property | None:
    """The URI that zkServers and its companions mean, where metadataServiceUri is missing or blank."""
    given = chosen.get(URI)
    servers = chosen.get(ZK_SERVERS)
    if (given is not None and given.value) or servers is None or not servers.value:
        return None
    root = chosen[ZK_ROOT].value if ZK_ROOT in chosen and chosen[ZK_ROOT].value else "/ledgers"
    factory = chosen.get("ledgerManagerFactoryClass")
    layout = LAYOUTS.get(factory.value) if factory is not None else None
    scheme = f"zk+{layout}" if layout else "zk"
    return Property(URI, f"{scheme}://{servers.value.replace(',', ';').replace(' ', '')}{root}", servers.where)


def value_of(item: Property, key: Key, annotation: object) -> object:
    """A property's value in the field's own unit, still to be checked by the model."""
    text = item.value
    if annotation == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(","))
    if key["scale"] != 1 and NUMBER.fullmatch(text):
        return int(text) * key["scale"]
    return text


def options(model: type[M], found: Sequence[Property], beside: Sequence[type[BaseModel]] = ()) -> tuple[M, list[str]]:
    """
    The options and the warnings to log, from properties in rising strength.  Keys of the models `beside` are passed
    over in silence: other processes, or other parts of this one, read the same file.
    Raises `ConfigurationError` for an unknown key, a bad value, a missing key or a broken relation, all of them in one
    text.
    """
    chosen = settled(found)
    derived = metadata_uri(chosen)
    if derived is not None:
        chosen[URI] = derived
    fields = {name: field for name, field in model.model_fields.items() if field.json_schema_extra is not None}
    field_of = {key: name for name, field in fields.items() for key in key_of(field)["names"]}
    others = {key for other in beside for field in other.model_fields.values() for key in key_of(field)["names"]}
    known = SERVER | CLIENT | others | set(field_of)
    values: dict[str, object] = {}
    origin: dict[str, Property] = {}
    warnings: list[str] = []
    faults: list[str] = []
    for key, item in chosen.items():
        name = field_of.get(key)
        if name is None:
            if (
                key in others
                or key in (ZK_SERVERS, ZK_ROOT)
                or (key == "ledgerManagerFactoryClass" and derived is not None)
            ):
                continue
            if key in UNSERVED_SECURITY and item.value.lower() not in NOT_ASKED:
                faults.append(
                    f"{item.where}: {key}={item.shown} asks for security that is not served here: "
                    f"{UNSERVED_SECURITY[key]}; keep others out by the network and remove the line"
                )
                continue
            if key in known or key.startswith(FAMILIES):
                if not item.value or key in UNSERVED_SECURITY:
                    continue  # nothing is expected of it
                advice = f": {ADVICE[key]}" if key in ADVICE else ""
                warnings.append(f"{item.where}: {key} has no meaning here{advice}")
                continue
            near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.0)
            faults.append(f"{item.where}: unknown key {key!r}; the nearest one is {near[0] if near else URI}")
            continue
        if not item.value:
            continue  # a blank value means the default, as in BookKeeper
        preferred = key_of(fields[name])["names"]
        if name in origin and preferred.index(origin[name].key) < preferred.index(key):
            continue
        origin[name] = item
        values[name] = value_of(item, key_of(fields[name]), fields[name].annotation)
    try:
        made = model.model_validate(values)
    except ValidationError as failure:
        for fault in failure.errors(include_url=False, include_context=False):
            name = str(fault["loc"][0]) if fault["loc"] else ""
            said = fault["msg"].removeprefix("Value error, ")
            if name not in fields:
                faults.append(said)
                continue
            key, allowed = key_of(fields[name])["names"][0], range_text(fields[name])
            if name not in origin:
                faults.append(
                    f"{key} is missing: {fields[name].description}; for example {key}={key_of(fields[name])['example']}"
                )
            else:
                item = origin[name]
                faults.append(f"{item.where}: {item.key}={item.shown} is not allowed: {allowed or said}")
        raise ConfigurationError("; ".join(faults)) from None
    if faults:
        raise ConfigurationError("; ".join(faults))
    return made, warnings


def load(
    model: type[M],
    path: str | None,
    environment: Mapping[str, str],
    extra: Sequence[Property] = (),
    beside: Sequence[type[BaseModel]] = (),
) -> tuple[M, list[str]]:
    """Options from a file, the environment and `extra`, in rising strength; warnings.  `beside`: models beside it."""
    properties = read(path) if path is not None else []
    stronger = {item.key: item for item in [*overrides(environment), *extra]}
    return options(model, [*(item for item in properties if item.key not in stronger), *stronger.values()], beside)


def sample(model: type[BaseModel], title: str) -> str:
    """The documented sample file of a model: required keys with an example, others commented out with defaults."""
    out = [
        f"# {title}",
        "# Keys are BookKeeper's unless their text says otherwise; BK_<key> in the environment overrides.",
        "",
    ]
    for field in model.model_fields.values():
        key = key_of(field)
        name, unit = key["names"][0], key["unit"]
        allowed = range_text(field)
        facts = [part for part in (f"unit: {unit}" if unit else "", f"allowed: {allowed}" if allowed else "") if part]
        out.append(f"# {field.description}" + (f" ({', '.join(facts)})" if facts else ""))
        out.append(f"{name}={key['example']}" if field.is_required() else f"#{name}={file_value(field, field.default)}")
        out.append("")
    return "\n".join(out)


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
