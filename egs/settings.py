"""One settings file for both profiles; everything that differs comes from the environment (egs/env.py).

EGS_PROFILE=embedded: one process, SQLite, a simulated or small fleet. EGS_PROFILE=production: PostgreSQL, Redis, Celery.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from egs.env import env_bool, env_choice, env_database, env_int, env_list, env_networks, env_peppers, env_secret, env_str
from egs.logging import logging_configure

BASE_DIR = Path(__file__).resolve().parent.parent
EGS_VERSION = "0.1.0"
EGS_VAR_DIR = Path(env_str("EGS_VAR_DIR", str(BASE_DIR / "var")))
EGS_PROFILE = env_choice("EGS_PROFILE", "embedded", ("embedded", "production"))
EMBEDDED = EGS_PROFILE == "embedded"


def _embedded_secret() -> str:
    """Made once per installation; losing it ends all tokens, so it lies beside the database."""
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
# Embedded serves files from where the packages have them; production from where collectstatic put them.
STATIC_ROOT = None if EMBEDDED else EGS_VAR_DIR / "static"
WHITENOISE_USE_FINDERS = EMBEDDED

DATABASES = {"default": env_database("EGS_DATABASE_URL", f"sqlite:///{EGS_VAR_DIR}/egs.sqlite3" if EMBEDDED else "")}
EGS_REDIS_URL = env_secret("EGS_REDIS_URL")
if not EMBEDDED and not EGS_REDIS_URL:
    raise ImproperlyConfigured("EGS_REDIS_URL or EGS_REDIS_URL_FILE must be set in the production profile.")

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
# Pages: everything from here, nothing inline.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
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
# Production is reached by HTTPS only, through a proxy that ends TLS and sets X-Forwarded-Proto itself.
EGS_BEHIND_TLS_PROXY = env_bool("EGS_BEHIND_TLS_PROXY", not EMBEDDED)
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = EGS_BEHIND_TLS_PROXY
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if EGS_BEHIND_TLS_PROXY else None
SECURE_HSTS_SECONDS = 31_536_000 if EGS_BEHIND_TLS_PROXY else 0
# Both ask that HSTS bind other hosts of the domain, too: that is for their owners to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
# Who may read /metrics without a token, unless a proxy stands between.
EGS_METRICS_ALLOW = env_networks("EGS_METRICS_ALLOW", "127.0.0.0/8,::1")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["accounts.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "core.rest.pagination.CreatedPagination",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "EXCEPTION_HANDLER": "core.rest.problems.problem_handler",
    "PAGE_SIZE": 50,
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "EGS, the Elastic GPU Service",
    "VERSION": "v1",
    "DESCRIPTION": "Book GPU nodes for a time: estimate, queue, watch, release. Errors are RFC 9457 problem documents.",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "GprStateEnum": "gpr.models.GprState",
        "EndReasonEnum": "gpr.models.EndReason",
        "SeverityEnum": "journal.models.Severity",
        "RoleEnum": "slices.models.Role",
        "ScopeEnum": "accounts.models.Scope",
        "ReservationStateEnum": "inventory.models.ReservationState",
        "AvailabilityEnum": "inventory.selectors.Availability",
        "MaintenanceStateEnum": "inventory.models.MaintenanceState",
        "KindEnum": "gpr.models.VictimKind",
        "CauseEnum": "gpr.requests.outputs.CAUSES",
        "SupplyKindEnum": "inventory.models.SupplyKind",
        "SupplyOrderStateEnum": "inventory.models.SupplyOrderState",
        "ReplacementOutcomeEnum": "gpr.replacement.selectors.Outcome",
    },
}

# Tokens: "1:first,2:second". The highest id signs; older ones still prove. Taking one out ends its tokens.
EGS_TOKEN_PEPPERS = env_peppers("EGS_TOKEN_PEPPERS", SECRET_KEY)
EGS_TOKEN_LIFE = timedelta(days=90)
EGS_TOKEN_LIFE_MAX = timedelta(days=365)
EGS_JOIN_TOKEN_LIFE = timedelta(hours=1)
EGS_AGENT_CREDENTIAL_LIFE = timedelta(hours=24)

# What the planner books around a GPR's own time, in seconds: entry checks before, drain and exit checks behind.
EGS_ENTRY_ALLOWANCE_S = env_int("EGS_ENTRY_ALLOWANCE_S", 15 if EMBEDDED else 120)
EGS_EXIT_ALLOWANCE_S = env_int("EGS_EXIT_ALLOWANCE_S", 15 if EMBEDDED else 300)
# An entry that takes longer has failed; so many failed entries fail the GPR.
EGS_ENTRY_TIMEOUT_S = env_int("EGS_ENTRY_TIMEOUT_S", 900)
EGS_ENTRY_ATTEMPTS_MAX = env_int("EGS_ENTRY_ATTEMPTS_MAX", 3)
# A node of a running GPR that is not ready, or has a sick GPU, for so long is replaced by a spare, as one that is gone. So many spares are
# tried for one node (0: none is ever), and none when less than so much time is left. A GPR whose node is gone waits so long for a spare.
EGS_SPARE_GRACE_S = env_int("EGS_SPARE_GRACE_S", 20 if EMBEDDED else 60)
EGS_SPARE_TRIES_MAX = env_int("EGS_SPARE_TRIES_MAX", 3)
EGS_SPARE_LEAST_S = env_int("EGS_SPARE_LEAST_S", 60 if EMBEDDED else 600)
EGS_SPARE_WAIT_S = env_int("EGS_SPARE_WAIT_S", 60 if EMBEDDED else 300)
# What the agent does with a node on the way in and out; without `run_checks` only the short list.
EGS_ENTRY_STEPS = ("node_ready", "gpu_count", "gpu_health", "storage", "network", "rdma", "nccl", "gang_network")
EGS_ENTRY_STEPS_SHORT = ("node_ready", "gpu_count")
EGS_EXIT_STEPS = ("drain", "gpu_idle", "exit_network", "exit_nccl", "volumes", "node_clean")
# Whoever is evicted has notice, and has run for a while; nobody is for a smaller gain than this (planner/sharing/evictions.py).
EGS_EVICTION_NOTICE_S = env_int("EGS_EVICTION_NOTICE_S", 60 if EMBEDDED else 600)
EGS_EVICTION_LEAST_RUN_S = env_int("EGS_EVICTION_LEAST_RUN_S", 120 if EMBEDDED else 1800)
EGS_EVICTION_GAIN_S = env_int("EGS_EVICTION_GAIN_S", 60 if EMBEDDED else 600)
# How long before its end what runs in a box is told that it is near; 0: not at all.
EGS_END_WARNING_S = env_int("EGS_END_WARNING_S", 60 if EMBEDDED else 600)
# How the queue is worked off: shortest first beside everybody's promised slot, or each as early as those before it allow.
EGS_POLICY = env_choice("EGS_POLICY", "guarded", ("guarded", "conservative"))
# From this priority on a new request moves promises of lower ones, each with its cause; 0: every promise holds.
EGS_BREAK_PROMISES_FROM = env_int("EGS_BREAK_PROMISES_FROM", 0)
# A gang that has waited for so much of its promised wait is moved up when a box ends early; 100: none is (planner/engine.py).
EGS_GANG_PATIENCE_PERCENT = env_int("EGS_GANG_PATIENCE_PERCENT", 30)
# No box is longer, whatever a slice's policy says: one year.
EGS_DURATION_MAX_S = 366 * 86_400
# What a project has used counts half after so long: among equals in priority who has used less than his share goes first.
EGS_FAIRNESS_HALF_LIFE_S = max(env_int("EGS_FAIRNESS_HALF_LIFE_S", 7 * 86_400), 1)
EGS_TICK_S = 1.0
# Where nothing happens and nothing is due, a tick plans anew after so long at the latest.
EGS_REST_S = 10
# An agent not heard for so long gets nothing new; after the second, its cluster is called unreachable.
EGS_AGENT_STALE_S = 45
EGS_AGENT_UNREACHABLE_S = 90

CELERY_BROKER_URL = EGS_REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 90
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 300}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # Redis may be away for as long as it likes
CELERY_TASK_ROUTES = {"gpr.tick": {"queue": "allocator"}}
# Beat only wakes: the tick is right with any number of beats, or none for an hour. A late wake-up is dropped, not caught up.
CELERY_BEAT_SCHEDULE = {"tick": {"task": "gpr.tick", "schedule": EGS_TICK_S, "options": {"expires": EGS_TICK_S}}}

LOGGING = logging_configure(is_json=not EMBEDDED, level=env_str("EGS_LOG_LEVEL", "INFO"))
