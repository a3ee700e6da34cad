join-title = Vous allez rejoindre la file
join-lead = L’entrée se fait dans l’ordre d’arrivée.
join-button = Rejoindre la file
scheduled-title = Ce n’est pas encore ouvert
scheduled-lead = Votre place est gardée. L’entrée se fait dans l’ordre dès l’ouverture.
draw-title = Le tirage au sort n’a pas encore eu lieu
draw-lead = À l’ouverture, un tirage au sort donne une place au hasard à chaque visiteur inscrit jusque-là. Ceux qui arrivent plus tard passent derrière.
drawn-lead = Un tirage au sort a donné une place au hasard à chaque visiteur inscrit avant l’ouverture. L’entrée suit cet ordre.
late-lead = Le tirage au sort est terminé. Ceux qui arrivent maintenant passent derrière, dans l’ordre d’arrivée.
waiting-title = Vous êtes dans la file
waiting-lead = L’entrée se fait dans l’ordre d’arrivée.
almost-title = Vous y êtes presque
almost-lead = C’est bientôt à vous. Gardez cette page ouverte.
paused-title = La file est en pause
paused-lead = L’organisateur a suspendu l’entrée pour le moment. Vous gardez votre place.
admitted-title = C’est à vous
admitted-lead = Entrez avant la fin du temps.
admitted-button = Entrer
full-title = La file est pleine
full-lead = Réessayez dans un instant.
expired-title = Votre place a pris fin
expired-lead = Cette page est restée trop longtemps sans contact, ou votre visite est terminée.
left-title = Vous avez quitté la file
left-lead = Votre place est passée à la personne suivante.
over-title = Cette file est fermée
over-lead = L’organisateur l’a fermée. Plus personne n’entre.
lost-title = Pas de connexion
lost-lead = La connexion est perdue. Vous gardez votre place ; cette page réessaie d’elle-même.
offer-title = Prenez votre place sur cet appareil
offer-lead = Ce lien transfère une place dans la file vers cet appareil, une seule fois. Elle prend fin sur l’appareil qui l’a maintenant.
offer-button = Prendre la place
moved-title = Votre place a changé d’appareil
moved-lead = Un autre appareil l’a prise avec le lien et continue avec elle. Cette page et son lien n’y mènent plus.
cookies-title = Veuillez autoriser les cookies
cookies-lead = Votre place est gardée dans un cookie, et votre navigateur ne l’a pas conservé. Autorisez les cookies de ce site, puis rejoignez la file.
rejoin-button = Rejoindre à nouveau
work-busy = Votre navigateur résout une petite tâche qui freine les robots.
work-wait = Une petite tâche freine les robots. Sans JavaScript, attendez { $count } s, puis appuyez sur le bouton.
ahead = { $count ->
    [0] Personne devant vous
    [one] { $count } personne devant vous
   *[other] { $count } personnes devant vous
}
entrants = { $count ->
    [one] { $count } personne participe au tirage
   *[other] { $count } personnes participent au tirage
}
draw-link = Vérifier le tirage
receipt-link = Enregistrer le reçu
wait-label = Attente prévue
wait-soon = moins d’une minute
wait-minutes = { $to ->
    [one] environ { $to } minute
   *[other] { $from } à { $to } minutes
}
wait-hours = { $to ->
    [one] environ { $to } heure
   *[other] { $from } à { $to } heures
}
wait-unknown = pas encore connue
number-label = Votre numéro
progress-label = Progression depuis votre arrivée
opens-label = Ouverture dans
ends-label = Temps restant
updated-label = Dernière mise à jour
kept = Vous gardez votre place si vous rechargez ou fermez cette page.
check-button = Vérifier maintenant
auto-button = Actualiser automatiquement
leave-button = Quitter la file
move-title = Continuer sur un autre appareil
move-lead = Ouvrez ce lien sur l’autre appareil et prenez-y la place. Il sert une seule fois : ne le montrez à personne.
soldout-title = Épuisé
soldout-lead = Tout a été attribué.
early-title = Pas encore ouvert
early-lead = Vous pourrez l’obtenir dès l’ouverture. Cette page s’ouvre toute seule.
claim-title = À vous
claim-lead = Prenez le vôtre maintenant. Un par personne.
claim-button = Obtenir maintenant
claimed-title = Il est à vous
claimed-lead = Notez ce code. Cette page l’affiche de nouveau dans ce navigateur.
ended-title = C’est terminé
ended-lead = Plus rien n’est distribué ici.
serial-label = Votre numéro de série
code-label = Votre code
remaining = { $count ->
    [0] plus aucun
    [one] il en reste { $count }
    [many] il en reste { $count }
   *[other] il en reste { $count }
}
language-label = Langue
