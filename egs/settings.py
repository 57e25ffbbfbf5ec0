"""Sets both profiles up; everything that differs comes from the environment (egs/env.py).

EGS_PROFILE=embedded: one process, SQLite. EGS_PROFILE=production: PostgreSQL, Redis, Celery.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from egs.env import (
    env_bool,
    env_choice,
    env_database,
    env_int,
    env_list,
    env_networks,
    env_peppers,
    env_providers,
    env_secret,
    env_str,
    origin_of,
)
from egs.logging import logging_configure

BASE_DIR = Path(__file__).resolve().parent.parent
EGS_VERSION = "0.1.0"
EGS_VAR_DIR = Path(env_str("EGS_VAR_DIR", str(BASE_DIR / "var")))
EGS_PROFILE = env_choice("EGS_PROFILE", "embedded", ("embedded", "production"))
EMBEDDED = EGS_PROFILE == "embedded"


def _embedded_secret() -> str:
    """Reads the secret that is kept beside the database: without it all tokens end."""
    path = EGS_VAR_DIR / "secret-key"
    EGS_VAR_DIR.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)
            file.write(secrets.token_urlsafe(48))
    except FileExistsError:
        pass
    return path.read_text(encoding="utf-8")


def _production_secret() -> str:
    raise ImproperlyConfigured("EGS_SECRET_KEY or EGS_SECRET_KEY_FILE must be set: a random string of 50 characters or more.")


SECRET_KEY = env_secret("EGS_SECRET_KEY") or (_embedded_secret() if EMBEDDED else _production_secret())
DEBUG = env_bool("EGS_DEBUG", False)
ALLOWED_HOSTS = env_list("EGS_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]" if EMBEDDED else "")

INSTALLED_APPS = [
    "egs",
    "accounts",
    "journal",
    "inventory",
    "slices",
    "gpr",
    "manifests",
    "observability",
    "inference",
    "portal_user",
    "portal_admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_htmx",
    "template_partials",
    "csp",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
MIDDLEWARE = [
    "core.request_origin.RequestOrigin",
    "core.rest.versions.VersionHeader",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "core.pages.middleware.OwnZone",
    "core.pages.middleware.HeadAsGet",
    "portal_shared.errors.Refusals",
]
ROOT_URLCONF = "egs.urls"
ASGI_APPLICATION = "egs.asgi.application"
AUTH_USER_MODEL = "accounts.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": ["django.template.context_processors.request"],
            "builtins": [
                "portal_shared.templatetags.egs_pages",
                "portal_shared.templatetags.egs_tables",
                "template_partials.templatetags.partials",
            ],
        },
    }
]
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Embedded serves static files from their source folders; production from where collectstatic put them.
STATIC_ROOT = None if EMBEDDED else EGS_VAR_DIR / "static"
WHITENOISE_USE_FINDERS = EMBEDDED

DATABASES = {"default": env_database("EGS_DATABASE_URL", f"sqlite:///{EGS_VAR_DIR}/egs.sqlite3" if EMBEDDED else "")}
EGS_REDIS_URL = env_secret("EGS_REDIS_URL")
if not EMBEDDED and not EGS_REDIS_URL:
    raise ImproperlyConfigured("EGS_REDIS_URL or EGS_REDIS_URL_FILE must be set in the production profile.")

# Identity providers for the login page, as a JSON list: see docs/how-to/sign-in.md.
EGS_OIDC_PROVIDERS = env_providers("EGS_OIDC_PROVIDERS")

# Shared by all web processes in production; embedded has one.
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": EGS_REDIS_URL, "KEY_PREFIX": "egs"}
    if EGS_REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
# Calls of the API that one token may make in a minute; 0: no limit.
EGS_API_RATE_PER_MIN = env_int("EGS_API_RATE_PER_MIN", 1200)
# Estimates, new and changed requests of one workspace in a minute; 0: no limit.
EGS_WORKSPACE_RATE_PER_MIN = env_int("EGS_WORKSPACE_RATE_PER_MIN", 600)
# Refused tokens on the login page, and codes of terminals that are asked for, from one address in a minute; 0: no limit.
EGS_REFUSED_SIGN_INS_PER_MIN = env_int("EGS_REFUSED_SIGN_INS_PER_MIN", 10)

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
# Pages load everything from this origin and have no inline scripts or styles.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        # Signing out sends the browser on to the provider.
        "form-action": ["'self'", *(origin_of(provider["issuer"]) for provider in EGS_OIDC_PROVIDERS)],
        "frame-ancestors": ["'none'"],
    }
}
SESSION_COOKIE_NAME = "egs_session"
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "egs_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "portal_shared.errors.forbidden"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# In production a proxy terminates TLS and sets X-Forwarded-Proto.
EGS_BEHIND_TLS_PROXY = env_bool("EGS_BEHIND_TLS_PROXY", not EMBEDDED)
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = EGS_BEHIND_TLS_PROXY
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if EGS_BEHIND_TLS_PROXY else None
SECURE_HSTS_SECONDS = 31_536_000 if EGS_BEHIND_TLS_PROXY else 0
# These checks want HSTS for subdomains and preload, which the owner of the domain has to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
# Proxies whose X-Forwarded-For tells the address of the client; empty: none is believed.
EGS_TRUSTED_PROXIES = [str(network) for network in env_networks("EGS_TRUSTED_PROXIES", "")]
# Networks that may read /metrics without a token, unless the request came through a proxy.
EGS_METRICS_ALLOW = env_networks("EGS_METRICS_ALLOW", "127.0.0.0/8,::1")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["accounts.permissions.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["accounts.rates.TokenRate"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "core.rest.pagination.CursorPagination",
    "DEFAULT_FILTER_BACKENDS": ["core.rest.filters.GivenFilters"],
    "EXCEPTION_HANDLER": "journal.refusals.problem_handler",
    "PAGE_SIZE": 50,
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "EGS, the Elastic GPU Service",
    "VERSION": "v1",
    "DESCRIPTION": (
        "Book GPU nodes for a time: estimate, queue, watch, release. Errors are RFC 9457 problem documents. `v1` only grows: the headers "
        "`Deprecation` (RFC 9745) and `Sunset` (RFC 8594) announce a removal a year ahead."
    ),
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "GprStateEnum": "gpr.models.GprState",
        "WorkloadStateEnum": "observability.workloads.models.WorkloadState",
        "EndReasonEnum": "gpr.models.EndReason",
        "SeverityEnum": "journal.models.Severity",
        "AlertRuleKindEnum": "observability.alerts.models.RuleKind",
        "AlertStateEnum": "observability.alerts.models.AlertState",
        "AlertSubjectStateEnum": "observability.alerts.models.SubjectState",
        "NoticeKindEnum": "journal.notices.kinds.NoticeKind",
        "ChannelKindEnum": "journal.models.ChannelKind",
        "DigestEnum": "journal.models.Digest",
        "DeliveryStateEnum": "journal.models.DeliveryState",
        "RoleEnum": "slices.models.Role",
        "ServiceRoleEnum": "slices.models.ROLES_OF_SERVICES",
        "PlatformRoleEnum": "accounts.models.PlatformRole",
        "GroupRoleEnum": "accounts.models.ROLES_OF_GROUPS",
        "ScopeEnum": "accounts.models.Scope",
        "ReservationStateEnum": "inventory.models.ReservationState",
        "AvailabilityEnum": "inventory.selectors.Availability",
        "MaintenanceStateEnum": "inventory.models.MaintenanceState",
        "KindEnum": "gpr.models.VictimKind",
        "CauseEnum": "gpr.requests.outputs.CAUSES",
        "JobKindEnum": "gpr.models.jobs.KINDS",
        "PhaseEnum": "inventory.models.PHASES",
        "WorkloadPhaseEnum": "gpr.models.jobs.PHASES",
        "JobStateEnum": "gpr.models.JobState",
        "SupplyKindEnum": "inventory.models.SupplyKind",
        "SupplyOrderStateEnum": "inventory.models.SupplyOrderState",
        "StepOutcomeEnum": "inventory.models.OUTCOMES",
        "CaseCauseEnum": "inventory.models.CordonCause",
        "CaseStateEnum": "observability.remediation.models.CaseState",
        "CaseActionEnum": "observability.remediation.models.ACTIONS",
        "RepairActionEnum": "observability.remediation.models.REPAIR_ACTIONS",
        "RemediationModeEnum": "observability.remediation.models.Mode",
        "ReplacementOutcomeEnum": "gpr.replacement.selectors.ReplacementOutcome",
    },
}

# Peppers of tokens, as "1:first,2:second". The highest id signs; the others only verify. Removing one ends its tokens.
EGS_TOKEN_PEPPERS = env_peppers("EGS_TOKEN_PEPPERS", SECRET_KEY)
# Keys of secrets that are stored, in the same form. The highest id encrypts; the others only decrypt.
EGS_SECRET_KEYS = env_peppers("EGS_SECRET_KEYS", SECRET_KEY)
EGS_TOKEN_LIFE = timedelta(days=90)
EGS_TOKEN_LIFE_MAX = timedelta(days=365)
# Sign-in by token on the login page; False: only identity providers. Tokens of programs work all the same.
EGS_TOKEN_LOGIN = env_bool("EGS_TOKEN_LOGIN", True)
# Sign-in of terminals by a code that a person confirms on a page; False: they take a token that somebody pastes.
EGS_DEVICE_LOGIN = env_bool("EGS_DEVICE_LOGIN", True)
# A browser's session ends when nobody has used it for IDLE, and in any case after MAX.
EGS_SESSION_IDLE_S = env_int("EGS_SESSION_IDLE_S", 8 * 3600)
EGS_SESSION_MAX_S = env_int("EGS_SESSION_MAX_S", 7 * 86_400)
# Roles that groups gave rest when the provider has not confirmed the groups for so many hours; 0: until the next sign-in says otherwise.
EGS_GROUPS_MAX_AGE_H = env_int("EGS_GROUPS_MAX_AGE_H", 0)
EGS_JOIN_TOKEN_LIFE = timedelta(hours=1)
EGS_AGENT_CREDENTIAL_LIFE = timedelta(hours=24)

# The planner reserves this time around a GPR's own: for entry checks before it, for drain and exit checks after it.
EGS_ENTRY_ALLOWANCE_S = env_int("EGS_ENTRY_ALLOWANCE_S", 15 if EMBEDDED else 120)
EGS_EXIT_ALLOWANCE_S = env_int("EGS_EXIT_ALLOWANCE_S", 15 if EMBEDDED else 300)
# An entry that takes longer has failed; this many failed entries fail the GPR.
EGS_ENTRY_TIMEOUT_S = env_int("EGS_ENTRY_TIMEOUT_S", 900)
EGS_ENTRY_ATTEMPTS_MAX = env_int("EGS_ENTRY_ATTEMPTS_MAX", 3)
# A spare replaces a node of a running GPR that is gone, or that is not ready or has a sick GPU for GRACE. At most TRIES_MAX spares are
# tried for a node (0: none), and none when the GPR has less than LEAST left. A GPR whose node is gone waits for a spare for WAIT.
EGS_SPARE_GRACE_S = env_int("EGS_SPARE_GRACE_S", 20 if EMBEDDED else 60)
EGS_SPARE_TRIES_MAX = env_int("EGS_SPARE_TRIES_MAX", 3)
EGS_SPARE_LEAST_S = env_int("EGS_SPARE_LEAST_S", 60 if EMBEDDED else 600)
EGS_SPARE_WAIT_S = env_int("EGS_SPARE_WAIT_S", 60 if EMBEDDED else 300)
# The steps of the agent when a node enters or leaves a GPR; without `run_checks` the short list.
EGS_ENTRY_STEPS = ("node_ready", "gpu_count", "gpu_health", "storage", "network", "rdma", "nccl", "gang_network")
EGS_ENTRY_STEPS_SHORT = ("node_ready", "gpu_count")
EGS_EXIT_STEPS = ("drain", "gpu_idle", "exit_network", "exit_nccl", "volumes", "node_clean")
# An evicted GPR gets this notice and has run for this long; the gain must be at least this (planner/sharing/evictions.py).
EGS_EVICTION_NOTICE_S = env_int("EGS_EVICTION_NOTICE_S", 60 if EMBEDDED else 600)
EGS_EVICTION_LEAST_RUN_S = env_int("EGS_EVICTION_LEAST_RUN_S", 120 if EMBEDDED else 1800)
EGS_EVICTION_GAIN_S = env_int("EGS_EVICTION_GAIN_S", 60 if EMBEDDED else 600)
# The pods of a GPR get a warning so long before its end; 0: none.
EGS_END_WARNING_S = env_int("EGS_END_WARNING_S", 60 if EMBEDDED else 600)
# guarded: shortest first, within the promises of all. conservative: each as early as those before it in the queue allow.
EGS_POLICY = env_choice("EGS_POLICY", "guarded", ("guarded", "conservative"))
# A new request of at least this priority may move promises of lower ones; 0: every promise holds.
EGS_BREAK_PROMISES_FROM = env_int("EGS_BREAK_PROMISES_FROM", 0)
# A gang that has waited this share of its promised wait moves up when a box ends early; 100: none does (planner/engine.py).
EGS_GANG_PATIENCE_PERCENT = env_int("EGS_GANG_PATIENCE_PERCENT", 30)
# The longest box, whatever a slice's policy says.
EGS_DURATION_MAX_S = 366 * 86_400
# Half-life of a project's past use in fair share, which orders requests of equal priority.
EGS_FAIRNESS_HALF_LIFE_S = max(env_int("EGS_FAIRNESS_HALF_LIFE_S", 7 * 86_400), 1)
EGS_TICK_S = 1.0
# The currency that pages and answers show beside prices and costs.
EGS_CURRENCY = env_str("EGS_CURRENCY", "USD")
# EGS makes and sends notices this often.
EGS_NOTICES_S = 1.0
# EGS rolls readings of GPUs up this often.
EGS_TELEMETRY_S = 30.0
# EGS measures workloads this often. Stragglers are named within two minutes, so this is as often as readings come.
EGS_WORKLOADS_S = 15.0
# EGS judges the rules of alerts this often.
EGS_ALERTS_S = 15.0
# Between looks for faults of GPUs and at nodes that are set aside.
EGS_REMEDIATION_S = 5.0
# When nothing changes and nothing is due, ticks plan only this often, in seconds.
EGS_REST_S = 10
# After EGS_AGENT_STALE_S without a sync a cluster gets no new work; after EGS_AGENT_UNREACHABLE_S it counts as unreachable.
EGS_AGENT_STALE_S = 45
EGS_AGENT_UNREACHABLE_S = 90

CELERY_BROKER_URL = EGS_REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 90
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 300}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # retry without end while Redis is away
# Notices wait for other machines, so a process of their own sends them.
CELERY_TASK_ROUTES = {
    "gpr.tick": {"queue": "allocator"},
    "journal.notices": {"queue": "notices"},
    "observability.telemetry": {"queue": "notices"},
    "observability.workloads": {"queue": "notices"},
    "observability.remediation": {"queue": "notices"},
}
# All are correct with any number of wake-ups. A late wake-up expires.
CELERY_BEAT_SCHEDULE = {
    "tick": {"task": "gpr.tick", "schedule": EGS_TICK_S, "options": {"expires": EGS_TICK_S}},
    "notices": {"task": "journal.notices", "schedule": EGS_NOTICES_S, "options": {"expires": EGS_NOTICES_S}},
    "alerts": {"task": "observability.alerts", "schedule": EGS_ALERTS_S, "options": {"expires": EGS_ALERTS_S}},
    "remediation": {"task": "observability.remediation", "schedule": EGS_REMEDIATION_S, "options": {"expires": EGS_REMEDIATION_S}},
    "telemetry": {"task": "observability.telemetry", "schedule": EGS_TELEMETRY_S, "options": {"expires": EGS_TELEMETRY_S}},
    "workloads": {"task": "observability.workloads", "schedule": EGS_WORKLOADS_S, "options": {"expires": EGS_WORKLOADS_S}},
}

# Events, and with them the audit log, are deleted after so many days; 0: they stay. Notices name Events for 90 days.
EGS_AUDIT_KEPT_DAYS = env_int("EGS_AUDIT_KEPT_DAYS", 0)
if 0 < EGS_AUDIT_KEPT_DAYS < 100 or EGS_AUDIT_KEPT_DAYS < 0:
    raise ImproperlyConfigured("EGS_AUDIT_KEPT_DAYS must be 100 at least, or 0.")

# Notices by mail, Slack and webhooks. Networks to which EGS may send what its users address there, also over plain HTTP.
EGS_OUTBOUND_ALLOW = env_networks("EGS_OUTBOUND_ALLOW", "")
EGS_SLACK_HOSTS = env_list("EGS_SLACK_HOSTS", "hooks.slack.com,hooks.slack-gov.com")
EGS_SLACK_API = env_str("EGS_SLACK_API", "https://slack.com/api/")
# The address that people open, for links in messages; empty: no links.
EGS_PUBLIC_URL = env_str("EGS_PUBLIC_URL").rstrip("/")
EMAIL_HOST = env_str("EGS_SMTP_HOST")  # empty: no mail is sent
EGS_SMTP_SECURITY = env_choice("EGS_SMTP_SECURITY", "starttls", ("starttls", "tls", "none"))
EMAIL_PORT = env_int("EGS_SMTP_PORT", 465 if EGS_SMTP_SECURITY == "tls" else 587)
EMAIL_USE_TLS, EMAIL_USE_SSL = EGS_SMTP_SECURITY == "starttls", EGS_SMTP_SECURITY == "tls"
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = env_str("EGS_SMTP_USER"), env_secret("EGS_SMTP_PASSWORD")
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = env_str("EGS_MAIL_FROM", "EGS <egs@localhost>")

LOGGING = logging_configure(is_json=not EMBEDDED, level=env_str("EGS_LOG_LEVEL", "INFO"))
