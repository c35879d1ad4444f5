//! `nighttrain cache`: the accelerator alone; with `--demo`, in front of a built-in slow site.

use std::{net::SocketAddr, sync::Arc};

use cache::config::Origin;
use engine::journal::Journal;

use crate::{
    admin::Purger,
    cli::CacheTask,
    failure::{Failure, failed},
    machine::ServerSet,
    services::{
        accelerator::{Accelerator, OriginChoice},
        certificates::Certificates,
        operation::{ConfigSources, RunningCommand},
        shell::{self, Service, ServiceSet},
    },
    settings::Settings,
    tools::demo,
};

/// Runs the accelerator until a signal ends it.
pub(crate) fn cache(task: &CacheTask) -> Result<(), Failure> {
    let sources = ConfigSources {
        file: task.config.path(),
        flags: task.settings.0.clone(),
        complete: Box::new(|_| Ok(())),
        servers: ServerSet::CACHE,
    };
    let (operation, access) = RunningCommand::begin(sources)?;
    let settings = operation.settings();
    if !task.demo && settings.origin.is_none() && settings.sites.is_empty() {
        return Err(Failure::Usage(
            "no origin: set the web server to accelerate with --origin http://HOST:PORT (or `origin` in [cache], or \
             NIGHTTRAIN_CACHE_ORIGIN, or sites in the file), or use --demo to try a demonstration site"
                .to_owned(),
        ));
    }
    shell::run(operation, access, |settings, journal| start(settings, journal, task.demo))
}

fn start(settings: &Settings, journal: Option<&Arc<Journal>>, demo: bool) -> Result<ServiceSet, Failure> {
    let (origin, site) = if demo {
        let site = demo::start().map_err(failed("cannot start the demonstration site"))?;
        (Some(origin_at(site)), ", a slow demonstration site (200 ms an answer)")
    } else {
        (settings.origin.clone(), "")
    };
    let sites = match settings.sites.len() {
        0 => None,
        1 => Some("1 site".to_owned()),
        many => Some(format!("{many} sites")),
    };
    let origin_and_site = origin.as_ref().map(|origin| format!("{origin}{site}"));
    let in_front_of = [sites, origin_and_site].into_iter().flatten().collect::<Vec<_>>().join(", and of ");
    let certificates = Certificates::of(settings).map_err(|fault| Failure::Configuration(vec![fault]))?;
    // With `--demo` the demonstration site is the origin, whatever the settings say.
    let origin_of: OriginChoice = match origin {
        Some(origin) if demo => Box::new(move |_| Some(origin.clone())),
        _ => Box::new(|settings| settings.origin.clone()),
    };
    let accelerator =
        Accelerator::start(settings, origin_of, certificates.clone(), journal, in_front_of, true)?;
    let hint = match accelerator.addresses().first() {
        Some(address) if demo => format!("Open http://{address}/ in a browser, and reload. Ctrl-C stops.\n"),
        _ => String::new(),
    };
    Ok(ServiceSet {
        services: vec![Arc::clone(&accelerator) as Arc<dyn Service>],
        certificates: certificates.as_ref().map(|certificates| Arc::clone(&certificates.tls.certificates)),
        beside: [
            certificates.and_then(|certificates| certificates.counters()),
            accelerator.cluster_counters(),
        ]
        .into_iter()
        .flatten()
        .collect(),
        purges: Some(accelerator as Arc<dyn Purger>),
        hint,
    })
}

pub(crate) fn origin_at(address: SocketAddr) -> Origin {
    Origin::at(address)
}
