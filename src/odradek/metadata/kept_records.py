"""Records that are kept by key and not interpreted here: those who own them read them.

ACLs, SCRAM credentials, client quotas and delegation tokens. The messages count as frozen: nobody
changes one that is in an image.
"""

from collections.abc import Mapping
from typing import TypeAlias

from odradek.core.ids import Uuid
from odradek.metadata.draft import Draft
from odradek.metadata.touched import QuotaKey, ScramKey, Touched
from odradek.protocol.generated.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

Acls: TypeAlias = Mapping[Uuid, AccessControlEntryRecord]
ScramCredentials: TypeAlias = Mapping[ScramKey, UserScramCredentialRecord]
ClientQuotas: TypeAlias = Mapping[QuotaKey, ClientQuotaRecord]
DelegationTokens: TypeAlias = Mapping[str, DelegationTokenRecord]

KeptRecord = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)


class KeptRecordsDraft:
    def __init__(
        self,
        acls: Acls,
        scram: ScramCredentials,
        quotas: ClientQuotas,
        tokens: DelegationTokens,
        touched: Touched,
    ) -> None:
        self.acls = Draft(acls, touched.acls)
        self.scram = Draft(scram, touched.scram)
        self.quotas = Draft(quotas, touched.quotas)
        self.tokens = Draft(tokens, touched.tokens)

    def replay(self, record: KeptRecord) -> None:
        match record:
            case AccessControlEntryRecord():
                self.acls.put(record.id, record)
            case RemoveAccessControlEntryRecord():
                self.acls.remove(record.id)
            case UserScramCredentialRecord():
                self.scram.put(ScramKey(record.mechanism, record.name), record)
            case RemoveUserScramCredentialRecord():
                self.scram.remove(ScramKey(record.mechanism, record.name))
            case ClientQuotaRecord():
                self._replay_quota(record)
            case DelegationTokenRecord():
                self.tokens.put(record.token_id, record)
            case RemoveDelegationTokenRecord():
                self.tokens.remove(record.token_id)

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        key = _quota_key(record)
        if record.remove:
            self.quotas.remove(key)
        else:
            self.quotas.put(key, record)


def _quota_key(record: ClientQuotaRecord) -> QuotaKey:
    pairs = [(each.entity_type, each.entity_name) for each in record.entity]
    return QuotaKey(tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] or ""))), record.key)
